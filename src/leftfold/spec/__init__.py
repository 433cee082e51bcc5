"""What a person declares: events, topics, features; the catalog that holds them. Pure: no socket, no JVM."""
