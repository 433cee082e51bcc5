"""Measures how well a scorer does: outcomes of its predictions, evaluation, skew and drift, as batches over the log.

The joins and counts are in `spark/quality`, the arithmetic of counts in `fold/scores.py`. This room decides what is
read, up to which offsets, and what a result means.
"""
