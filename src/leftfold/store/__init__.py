"""The online store: fenced writes and the fast read path.

The only room that imports redis. It knows rows and tiles, not Spark and not Kafka.
"""
