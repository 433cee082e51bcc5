"""Line numbers and what became of the lines: compared with a set of each, line by line."""

from __future__ import annotations

import subprocess
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from leftfold.cli.lines import Lines, Span, sed, shown, spans


def numbers(of: list[Span]) -> set[int]:
    return {n for a, b in of for n in range(a, b + 1)}


@given(st.integers(0, 60), st.data())
def test_every_line_that_was_sent_has_one_outcome(last: int, data: st.DataObject) -> None:
    fates = data.draw(st.lists(st.sampled_from(["acknowledged", "failed", "unknown"]), min_size=last, max_size=last))
    lines = Lines()
    lines.last = lines.at = last
    order = data.draw(st.permutations(range(1, last + 1)))
    for number in order:  # partitions answer in any order
        fate = fates[number - 1]
        if fate != "acknowledged":
            lines.note(number, "failed" if fate == "failed" else "unknown")
    for fate in ("acknowledged", "failed", "unknown"):
        found: list[Span] = getattr(lines, fate)
        assert numbers(found) == {n for n in range(1, last + 1) if fates[n - 1] == fate}
        assert all(b[0] - a[1] > 1 for a, b in pairwise(found)), "ranges that touch are one"
    assert lines.not_sent_from == last + 1
    lines.ended = True
    assert lines.not_sent_from is None


def test_a_line_that_was_not_taken_is_where_to_go_on() -> None:
    lines = Lines()
    lines.last, lines.at = 4, 7  # 5 and 6 are blank
    assert lines.not_sent_from == 7
    lines.cut_off()
    assert (lines.unknown, lines.not_sent_from) == ([(7, 7)], 8)
    lines.cut_off()
    assert lines.unknown == [(7, 7)]


def test_what_people_read() -> None:
    assert shown([(7, 7)], "line") == "line 7"
    assert shown([(1, 5), (9, 9)], "line") == "lines 1-5, 9"
    assert shown(spans(range(1, 60, 2)), "line").endswith("19 and 20 more ranges")


def test_sed_prints_exactly_these_lines() -> None:
    text = "".join(f"{n}\n" for n in range(1, 31))
    script = sed([(2, 4), (9, 9)], then_from=28)
    assert script is not None
    run = subprocess.run(["sed", "-n", script], input=text, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["2", "3", "4", "9", "28", "29", "30"]
    assert sed([(2, 4), (9, 9)], then_from=10) == "2,4p;9,$p"
    assert sed(spans(range(1, 60, 2)), then_from=None) is None


def test_blank_lines_alone_are_not_said_to_be_acknowledged() -> None:
    lines = Lines()
    lines.last = 7
    lines.blank.extend([2, 5])
    lines.note(1, "failed")
    lines.note(3, "unknown")
    assert lines.acknowledged == [(4, 7)]
