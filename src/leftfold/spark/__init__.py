"""The data pipeline on Spark: session, source, checkpoints, and in inner rooms views, sinks, history and training.

The only room that imports pyspark. It computes what it is given; `run` decides when.
"""
