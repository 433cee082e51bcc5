"""A report on a training set, as people read it."""

from __future__ import annotations

from leftfold.training.report import Report


def test_it_is_a_table_of_features() -> None:
    differ = {("event", "log"): {"clicks_1h": 1_045, "category": 0}}
    assert str(Report("log", 1_200, 0, 0, 0, {"clicks_1h": 3, "category": 1_100}, differ)) == (
        "1,200 labels, as of log\n"
        "  feature    missing  event ≠ log\n"
        "  clicks_1h        3        1,045\n"
        "  category     1,100            0"
    )


def test_it_says_which_labels_lack_history() -> None:
    shown = str(Report("served", 10, 1, 2, 3, {"clicks_1h": 0}, {}))
    assert shown.splitlines()[1:4] == [
        "  1 have no time, so they have no values",
        "  2 reach back beyond what the log still has",
        "  3 are from hours for which it is not known which batch was served",
    ]
    assert "≠" not in shown
