"""The plan: the steps from what was observed to what is declared. `apply` walks the same list that was shown.

Steps change topics, schemas and builds. Nothing here runs a view.
"""
