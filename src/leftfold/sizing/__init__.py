"""The sizing model: from rates, sizes and keys to partitions, brokers, disk, cores, state and memory.

Pure arithmetic that shows its steps. The probe that measures its constants is `run/probe.py`.
"""
