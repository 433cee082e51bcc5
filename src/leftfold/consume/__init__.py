"""Runs consumers: takes records, hands them to a person's functions, settles them, and commits positions.

The client of the group is in `kafka`. Nothing here needs Spark or a JVM.
"""
