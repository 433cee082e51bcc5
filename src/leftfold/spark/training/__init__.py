"""The point-in-time joins of a training set: labels with tiles, tables and free views as of a time.

Which offsets are read is decided in `leftfold.training`.
"""
