"""History as batch jobs: records from archive and log, re-driven records, rows computed from them, comparisons.

Nothing here is a stream.
"""
