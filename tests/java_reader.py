"""examples/reader_java, compiled and run with libraries that PySpark brings."""

from __future__ import annotations

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[1] / "examples" / "reader_java"
LIBRARIES = ("jackson-annotations", "jackson-core", "jackson-databind", "datasketches-java", "datasketches-memory")
BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # a JVM that lives for a second takes half of the CPU so


class JavaReader:
    """The compiled reader. Each call starts a JVM."""

    def __init__(self, classes: Path) -> None:
        self._classpath = ":".join([str(classes), *(str(jar) for jar in library_jars())])
        sources = sorted(str(source) for source in EXAMPLE.glob("*.java"))
        options = [*(f"-J{option}" for option in BRIEF), "-Xlint:all", "-Werror", "-cp", self._classpath]
        subprocess.run(["javac", *options, "-d", classes, *sources], check=True, timeout=120)

    def of_document(self, document: Path) -> list[dict[str, Any]]:
        """What it reads of each row in a document like conformance.json: `held`, then `held_packed` if it is there."""
        return self._run(str(document))

    def of_store(self, url: str, namespace: str, view: str, at: int | str, *entities: str) -> list[dict[str, Any]]:
        """What it reads of entities in a Redis at a moment, or `now`."""
        host, _, port = url.removeprefix("redis://").partition("/")[0].partition(":")
        return self._run(host, port, namespace, view, str(at), *entities)

    def _run(self, *arguments: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            ["java", *BRIEF, "-cp", self._classpath, "Reader", *arguments],
            check=True,
            stdout=subprocess.PIPE,
            timeout=120,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]


def library_jars() -> list[Path]:
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    jars = Path(pyspark.origin).parent / "jars"
    return [jar for library in LIBRARIES for jar in jars.glob(f"{library}-[0-9]*.jar")]
