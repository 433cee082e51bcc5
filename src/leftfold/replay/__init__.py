"""Replays of a topic: its records in a range of offsets as files or a DataFrame, copied to another topic, or archived.

Nothing here changes a view; `rebuild` does.
"""
