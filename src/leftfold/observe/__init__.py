"""Observes what exists now: the cluster, its topics, groups and schemas, the builds in the store, samples of records.

Read-only. Nothing here judges or plans: `hazards` and `plan` do.
"""
