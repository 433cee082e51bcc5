"""History read again: ranges of a topic, training sets, rebuilt views."""
