"""The data pipeline: the only room that imports pyspark. Session, source, compilation of a view, the write of a batch."""
