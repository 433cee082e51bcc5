"""Kubernetes manifests of a project: its Kafka for Strimzi, its views as Spark applications, its consumers.

Nothing here talks to a cluster. What is rendered is checked against schemas before anybody sees it.
"""
