"""Redis Cluster as an online store: rows in buckets, each in one slot with a mark of its own."""
