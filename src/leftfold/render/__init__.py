"""Kubernetes manifests of a project: its Kafka cluster and topics for Strimzi, and its views as Spark applications.

Nothing here talks to a cluster. What is rendered is checked against schemas before anybody sees it.
"""
