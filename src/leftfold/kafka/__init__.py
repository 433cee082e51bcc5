"""The log: the only room that imports confluent_kafka. Admin, schema registry, producer."""
