"""The lock file of Java archives (names and sha256), and the per-user cache that they are fetched into.

The user's own Maven client fetches each archive as a single file. Mirrors and credentials are those of that client, and
no host is named here. An archive is used only if its bytes are those recorded in jars.lock.json.
`python -m leftfold.jars fetch` fills the cache; `python -m leftfold.jars lock` makes the lock file again from ROOTS.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape

from leftfold import class_archive, private
from leftfold.errors import LocalError

LOCK = Path(__file__).with_name("jars.lock.json")
STAMP = ".verified"
# The version of maven-dependency-plugin. Without one, Maven takes a version that nobody tested. This is the last one
# whose `copy` reads no descriptor. 3.x looks for the registry's parent pom, which was never published, and fails.
PLUGIN = "2.10"
TRIES = 3  # a repository that sometimes answers with an error is common; three errors in a row are not
Progress = Callable[[str], None]

# The lock file is made from these roots. A set in TRANSITIVE holds everything that its roots need at run time. The
# other sets hold exactly their roots. log4j-slf4j-impl binds slf4j 1.7, the version that Kafka brings: without it a
# broker's log is lost.
TRANSITIVE = {"kafka"}
ROOTS = {
    "kafka": ["org.apache.kafka:kafka_2.13:4.3.1", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"],
    "registry": ["io.apicurio:apicurio-registry-app:3.0.9:tar.gz:all"],
    "spark": [
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.spark:spark-avro_2.13:4.1.1",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ],
    # Delta, in addition to the Spark set: only a session that uses a lake loads it.
    "lake": ["io.delta:delta-spark_4.1_2.13:4.4.0", "io.delta:delta-storage:4.4.0"],
    # Kafka's own command line tools, in addition to the kafka set. Tests check with them that Kafka sees our settings.
    "tools": ["org.apache.kafka:kafka-tools:4.3.1"],
}
# Sets that only tests need. No verb needs them, so a machine without them is complete.
FOR_TESTS = {"tools"}


@dataclass(frozen=True, slots=True)
class Jar:
    """One file in the lock. Its coordinate is group:artifact:version[:type[:classifier]]."""

    coordinate: str
    file: str
    bytes: int
    sha256: str


def locked() -> dict[str, tuple[Jar, ...]]:
    """The archives in the lock file, by set."""
    return _read(LOCK)


def needed() -> dict[str, tuple[Jar, ...]]:
    """The archives of the sets that verbs use, by set."""
    return {name: jars for name, jars in locked().items() if name not in FOR_TESTS}


@cache
def _read(lock: Path) -> dict[str, tuple[Jar, ...]]:
    document = json.loads(lock.read_text(encoding="utf-8"))
    return {name: tuple(Jar(**entry) for entry in entries) for name, entries in document["sets"].items()}


def cache_home() -> Path:
    """The directory that caches archives for all projects of this user."""
    if own := os.environ.get("LEFTFOLD_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "leftfold"


def directory(set_name: str) -> Path:
    """The directory of a set. Its name changes with the lock, so an upgrade never mixes two versions."""
    return cache_home() / "jars" / f"{set_name}-{_digest(set_name)[:12]}"


def ensure(set_name: str, progress: Progress | None = None) -> Path:
    """Return the directory of the set. Fetch and verify the set first if needed. Safe between processes."""
    home = directory(set_name)
    if _verified(set_name):
        return home
    private.directory(home)
    with _exclusive(home.with_suffix(".lock")):
        if not _verified(set_name):  # another process may have done it while this one waited
            wanted = [jar for jar in locked()[set_name] if not _intact(home / jar.file, jar)]
            _fetch(set_name, wanted, home, progress or (lambda _: None))
            _write_atomically(home / STAMP, _digest(set_name))
    return home


def paths(set_name: str) -> list[Path]:
    """Return the files of a set, in the order of the lock. Fetch them first if needed."""
    home = ensure(set_name)
    return [home / jar.file for jar in locked()[set_name]]


def missing() -> list[Jar]:
    """Return the archives that are not in the cache or have the wrong size there. Reads sizes and stamps, not contents.

    A file of the right size counts as present even if its set was never verified.
    """
    return [
        jar
        for set_name, jars in needed().items()
        for jar in jars
        if not _verified(set_name) and not _right_size(directory(set_name) / jar.file, jar)
    ]


def unverified() -> list[str]:
    """The names of the sets that `ensure` would have to fetch or verify."""
    return [set_name for set_name in needed() if not _verified(set_name)]


def _digest(set_name: str) -> str:
    text = "\n".join(f"{jar.sha256}  {jar.file}" for jar in locked()[set_name])
    return hashlib.sha256(text.encode()).hexdigest()


def _verified(set_name: str) -> bool:
    """Return whether the set is in the cache and verified. Cheap, because it runs at every start.

    The stamp says that the bytes were those of this lock. The sizes are taken as evidence that they still are.
    """
    home = directory(set_name)
    try:
        stamp = (home / STAMP).read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return stamp == _digest(set_name) and all(_right_size(home / jar.file, jar) for jar in locked()[set_name])


def _right_size(path: Path, jar: Jar) -> bool:
    return path.is_file() and path.stat().st_size == jar.bytes


def _intact(path: Path, jar: Jar) -> bool:
    return _right_size(path, jar) and _sha256(path) == jar.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(set_name: str, wanted: Sequence[Jar], home: Path, progress: Progress) -> None:
    if not wanted:
        return
    size = sum(jar.bytes for jar in wanted) / 1e6
    progress(f"fetching {len(wanted)} files of the {set_name} set ({size:.0f} MB) with mvn")
    with tempfile.TemporaryDirectory(dir=home.parent, prefix="fetch-") as temporary:
        _copy([jar.coordinate for jar in wanted], Path(temporary))
        for jar in wanted:
            arrived = Path(temporary) / jar.file
            actual = _sha256(arrived) if arrived.is_file() else "no file of that name"
            if actual != jar.sha256:
                raise LocalError(
                    "jar-checksum",
                    f"{jar.file} is not the file that Leftfold was tested with",
                    why=f"sha256 should be {jar.sha256}, is {actual}",
                    state="it was not put in the cache; files that arrived whole are kept",
                    fix=f"delete it from Maven's own cache (~/.m2/repository/{_repository_path(jar)}) and run "
                    "`python -m leftfold.jars fetch`; if it comes back the same, ask who runs your Maven mirror",
                )
            arrived.replace(home / jar.file)


def _repository_path(jar: Jar) -> str:
    group, artifact, version = jar.coordinate.split(":")[:3]
    return f"{group.replace('.', '/')}/{artifact}/{version}"


def _copy(coordinates: Sequence[str], into: Path) -> None:
    """Copy files from Maven's repositories. This works even for an archive whose parent pom is missing there."""
    items = "".join(f"<artifactItem>{_xml(coordinate)}</artifactItem>" for coordinate in coordinates)
    body = f"<outputDirectory>{escape(str(into))}</outputDirectory><artifactItems>{items}</artifactItems>"
    _mvn(["dependency:copy"], configuration=body)


def _xml(coordinate: str) -> str:
    tags = ("groupId", "artifactId", "version", "type", "classifier")
    return "".join(f"<{tag}>{escape(part)}</{tag}>" for tag, part in zip(tags, coordinate.split(":"), strict=False))


def _mvn(goal: Sequence[str], *, configuration: str = "", dependencies: str = "") -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise LocalError(
            "mvn-missing",
            "there is no mvn on the PATH",
            why="the Java archives of the brokers, the registry and the Spark connector are fetched with Maven",
            fix="install Maven (Debian: `apt install maven`, macOS: `brew install maven`), then run this again",
        )
    pom = (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>leftfold</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies><build><plugins><plugin>"
        "<groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId>"
        f"<version>{PLUGIN}</version><configuration>{configuration}</configuration></plugin></plugins></build></project>"
    )
    with tempfile.TemporaryDirectory(prefix="leftfold-mvn-") as temporary:
        (Path(temporary) / "pom.xml").write_text(pom, encoding="utf-8")
        said = ""
        for attempt in range(TRIES):
            again = ["-U"] if attempt else []  # without it Maven remembers a failed download
            ran = subprocess.run(
                [mvn, "-B", "-q", *again, *goal], cwd=temporary, capture_output=True, text=True, check=False
            )
            if ran.returncode == 0:
                return
            said = ran.stdout + ran.stderr
    raise LocalError(
        "jar-download-failed",
        f"mvn {goal[0]} failed {TRIES} times",
        why=_first_error(said),
        state="files that arrived earlier stay in the cache; nothing is half there",
        fix="see that `mvn` can reach its repositories (proxy, mirror and credentials are in ~/.m2/settings.xml), "
        "then `python -m leftfold.jars fetch`",
        retriable=True,
    )


def _first_error(said: str) -> str:
    """Return Maven's first error line. It states the cause; the other lines are advice."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.partition("[ERROR]")[2].strip() for line in lines if "[ERROR]" in line]
    return next(iter(errors or lines[-1:]), "it said nothing")


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _write_atomically(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _resolve(set_name: str) -> list[str]:
    """The coordinates of a set: its roots, and for a transitive set everything that they need at run time."""
    roots = ROOTS[set_name]
    if set_name not in TRANSITIVE:
        return roots
    with tempfile.TemporaryDirectory() as temporary:
        listing = Path(temporary) / "list"
        declared = "".join(f"<dependency>{_xml(root)}</dependency>" for root in roots)
        _mvn(["dependency:list", "-DincludeScope=runtime", f"-DoutputFile={listing}"], dependencies=declared)
        rows = [line.strip().split(":") for line in listing.read_text(encoding="utf-8").splitlines() if ":jar:" in line]
    # group:artifact:type:version:scope
    return sorted(f"{row[0]}:{row[1]}:{row[3]}" for row in rows)


def _lock() -> None:
    sets: dict[str, list[dict[str, object]]] = {}
    for set_name in ROOTS:
        coordinates = _resolve(set_name)
        with tempfile.TemporaryDirectory() as temporary:
            _copy(coordinates, Path(temporary))
            sets[set_name] = [asdict(_describe(coordinate, Path(temporary))) for coordinate in coordinates]
    _write_atomically(LOCK, json.dumps({"version": 1, "sets": sets}, indent=1) + "\n")


def _describe(coordinate: str, home: Path) -> Jar:
    _, artifact, version, *rest = coordinate.split(":")
    kind = rest[0] if rest else "jar"
    file = "-".join([artifact, version, *rest[1:]]) + f".{kind}"
    return Jar(coordinate, file, (home / file).stat().st_size, _sha256(home / file))


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main(arguments: Sequence[str]) -> int:
    if list(arguments) == ["lock"]:
        _lock()
        _say(f"wrote {LOCK}")
        return 0
    if list(arguments) == ["fetch"]:
        try:
            for set_name in locked():
                _say(f"✓ {set_name}: {ensure(set_name, lambda line: _say(f'… {line}'))}")
        except LocalError as error:
            _say(str(error))
            return 1
        _say("… archiving their classes, so that Spark and the local cluster start faster")
        makers = ["leftfold.local.archived_classes"]
        if class_archive.spark_jars():
            makers.append("leftfold.spark.archived_classes")
        for maker in makers:
            subprocess.run([sys.executable, "-m", maker], check=False)  # it says what it made, if anything
        return 0
    _say("usage: python -m leftfold.jars fetch | lock")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
