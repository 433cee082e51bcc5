"""Small work on the log in this process, with Arrow tables and without a JVM: training sets, their reports, replays.

It reads records by offsets, decodes and judges them one by one, and folds them with the code of `fold`. What it makes
is the same, to the last bit, as what `spark` makes. What it cannot do raises `OnlySparkError` with the reason.
"""


class OnlySparkError(Exception):
    """The work needs Spark. The text says why, and follows "because"."""
