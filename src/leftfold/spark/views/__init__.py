"""Views compiled to Spark plans: tiles of windowed features, tables, free views.

A plan yields rows and writes nothing: `sinks` does.
"""
