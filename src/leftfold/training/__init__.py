"""Training sets: for each label the features that were known at its time, from the log.

The joins are in `spark/training`. This room decides what is read, up to which offsets, and writes the manifest.
"""
