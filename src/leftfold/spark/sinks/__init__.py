"""Writes of a batch: to the online store, a changelog, Delta tables and the topics of rejects.

Nothing here computes a value.
"""
