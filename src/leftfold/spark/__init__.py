"""The data pipeline: the only room that imports pyspark. Session, source, compiled view, written batch."""
