"""What a person declares: events, topics, features; the catalog that holds them. Pure: opens no socket, starts no JVM."""
