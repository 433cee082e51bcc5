from __future__ import annotations

from pathlib import Path

import pytest

import leftfold as lf
from leftfold.adopt.undecided import undecided
from tests.unit.conftest import MakeProject


def test_it_says_what_to_decide_and_where(make_project: MakeProject) -> None:
    text = 'from leftfold.adopt.undecided import undecided\n\nundecided("what", "why", "write this")\n'
    app = lf.open(make_project(files={"streams.py": text}))
    with pytest.raises(lf.DeclarationError) as refused:
        _ = app.catalog
    error = refused.value
    assert (error.code, error.what, error.why, error.fix) == ("undecided", "what", "why", "write this")
    assert str(error.source) == "streams.py:3"


def test_it_never_gives_a_value() -> None:
    with pytest.raises(lf.DeclarationError) as refused:
        undecided("what", "why", "fix")
    assert refused.value.source is not None
    assert Path(refused.value.source.file) == Path(__file__)
