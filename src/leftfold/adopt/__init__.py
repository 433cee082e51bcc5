"""From a topic that exists to its declaration. Reads the cluster, never writes to it."""
