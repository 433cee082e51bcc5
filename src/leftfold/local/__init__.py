"""The local cluster: real brokers, registry and store as child processes, on loopback only.

Child processes are known by identity, never by name. Nothing here imports an engine's client library.
"""
