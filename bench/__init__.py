"""Benchmarks: ratios against the bare engine, interleaved in one run, outputs compared before speed counts."""
