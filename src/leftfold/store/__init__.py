"""The online store: fenced writes and the fast read path.

It knows rows and tiles, not Spark and not Kafka. `engine` is what a store must be able to do; `redis` is the room of
the one that does it, and the only one that imports its library.
"""
