"""Manifests of every example project are valid, and those of the template are exactly these bytes.

`LEFTFOLD_GOLDEN=write pytest tests/unit/render` writes them anew; read the diff.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from leftfold.render.crds import wrong
from leftfold.render.documents import as_yaml
from leftfold.render.spark import SparkOptions
from leftfold.render.strimzi import StrimziOptions
from tests.unit.render.projects import CONSUMERS, EXAMPLES, SPARK, STRIMZI, examples, for_kubernetes, with_consumers

GOLDEN = Path(__file__).parent / "golden"
GUIDE = EXAMPLES.parent / "docs" / "guide" / "kubernetes.md"
OPTIONS: dict[str, StrimziOptions | SparkOptions] = {"strimzi": STRIMZI, "spark": SPARK}


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("example", examples(), ids=lambda path: path.name)
def test_every_example_is_valid(example: Path, kind: str, tmp_path: Path) -> None:
    made = for_kubernetes(example, tmp_path).render(OPTIONS[kind])
    assert len(made) > 1
    read = list(yaml.safe_load_all(as_yaml(made)))
    assert read == made  # what a reader of the YAML sees is what was checked
    assert [wrong(one) for one in read] == [[]] * len(read)


@pytest.mark.parametrize("kind", OPTIONS)
def test_the_template(kind: str, tmp_path: Path) -> None:
    text = as_yaml(for_kubernetes(EXAMPLES / "clickstream", tmp_path).render(OPTIONS[kind]))
    if os.environ.get("LEFTFOLD_GOLDEN") == "write":
        (GOLDEN / f"{kind}.yaml").write_text(text)
    assert text == (GOLDEN / f"{kind}.yaml").read_text()


def test_consumers(tmp_path: Path) -> None:
    text = as_yaml(with_consumers(tmp_path).render(CONSUMERS))
    if os.environ.get("LEFTFOLD_GOLDEN") == "write":
        (GOLDEN / "consumers.yaml").write_text(text)
    assert text == (GOLDEN / "consumers.yaml").read_text()


def test_the_profile_of_the_guide(tmp_path: Path) -> None:
    (profile,) = re.findall(r"```toml\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    app = for_kubernetes(EXAMPLES / "clickstream", tmp_path, profile)
    assert app.render(replace(SPARK, ca_secret="shop-cluster-ca-cert"))


@pytest.mark.parametrize("options", [StrimziOptions("c", "n", topics_only=True), SparkOptions("i", "n", "s")])
def test_the_same_again(options: StrimziOptions | SparkOptions, tmp_path: Path) -> None:
    app = for_kubernetes(EXAMPLES / "clickstream", tmp_path)
    assert as_yaml(app.render(options)) == as_yaml(app.render(options))
