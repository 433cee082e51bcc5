from __future__ import annotations

from leftfold.fold.build_id import BuildId


def test_it_is_the_fingerprint_and_the_beginning_of_the_checkpoints_id() -> None:
    made = BuildId.of("1f2e3d4c5b6a", "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9")
    assert str(made) == "1f2e3d4c5b6a-0a1b2c3d"


def test_text_is_read_back() -> None:
    assert BuildId.parse("1f2e3d4c5b6a-0a1b2c3d") == BuildId("1f2e3d4c5b6a", "0a1b2c3d")
