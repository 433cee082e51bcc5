"""Runs the views of a project in one Spark application: supervision, batches, restarts, receipts, status.

What Spark computes is in `spark`; this room decides when, from where, and what a failure means.
"""
