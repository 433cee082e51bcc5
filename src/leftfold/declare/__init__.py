"""Declarations: events, topics, views and vectors, and the catalog that holds them.

Pure: no socket and no JVM. What a window means is in `fold`.
"""
