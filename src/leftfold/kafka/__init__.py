"""The log: admin, schema registry, producer, readers, changelogs and rejects.

The only room that imports confluent_kafka and kafka-python. Records are processed in `spark`.
"""
