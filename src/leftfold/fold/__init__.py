"""The algebra of a view: what a windowed feature means, without any engine.

Pure Python over plain values. Spark compiles the same `Definition`, the store keeps its JSON, a unit test folds it.
"""
