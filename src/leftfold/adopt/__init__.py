"""Adopts an existing topic: makes a declaration from its schema, settings and samples.

Reads the cluster and never writes to it.
"""
