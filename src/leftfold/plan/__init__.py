"""Observed state + catalog -> steps. What is explained is what is applied: both walk the same list."""
