from __future__ import annotations

import leftfold as lf
from leftfold.declare.rows import Provenance, html_table, make_row
from tests.unit.declare.declared import NOON, Click, clicks


class Activity(lf.Features, of=clicks, by=Click.user_id):
    n = lf.count("1h")
    item = lf.last(Click.item_id, "1h")


ORIGIN = (Provenance("activity", "b1", 7, found=True),)
ROW = make_row(Activity, {"n": 3, "item": "<i>"}, found=True, read_at=NOON, provenance=ORIGIN)


def test_a_row() -> None:
    assert (ROW.n, ROW.item, ROW.found, ROW.read_at, ROW.provenance) == (3, "<i>", True, NOON, ORIGIN)
    assert ROW.values == {"n": 3, "item": "<i>"}
    assert repr(ROW) == "Activity(n=3, item='<i>')"


def test_a_notebook_shows_where_it_came_from_and_runs_nothing_of_it() -> None:
    shown = ROW._repr_html_()
    assert "Activity at 2026-01-05 12:00:00 UTC, from activity b1 batch 7" in shown
    assert "<i>" not in shown
    assert "&lt;i&gt;" in shown


def test_a_row_that_was_computed_has_no_origin() -> None:
    computed = make_row(Activity, {"n": 0, "item": None}, found=False, read_at=NOON, provenance=())
    assert "from" not in computed._repr_html_()


def test_a_table_with_a_head() -> None:
    assert html_table(("a&",), [("<b>",)], caption="c>") == (
        "<table><caption>c&gt;</caption><thead><tr><th>a&amp;</th></tr></thead>"
        "<tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>"
    )
