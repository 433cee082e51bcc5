"""Predictions and their outcomes as Spark frames: joins, counts and comparisons for the room `quality`."""
