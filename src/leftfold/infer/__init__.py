"""Scores rows of vectors with models: for requests, and for the records of a topic.

A stream is scored by a consumer of `consume`. Nothing here needs Spark or a JVM.
"""
