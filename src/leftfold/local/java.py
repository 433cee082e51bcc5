"""Finds the Java that runs the brokers and the registry, and checks that it is new enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from leftfold.errors import LocalError

OLDEST = 17  # Kafka 4 brokers, Spark 4 and the registry all need it

# A process with a full heap must end instead of continuing half alive. With IPv4 only, it listens on 127.0.0.1 alone.
FLAGS = ("-XX:+ExitOnOutOfMemoryError", "-Djava.net.preferIPv4Stack=true", "-Djava.awt.headless=true")
# No second compiler, no threads of a garbage collector. Otherwise a young broker spends half of its CPU time compiling:
# on two cores three brokers are ready after 12 s instead of 7, and take half as many records in their first minute.
BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_FIX = (
    "install Java 17 (Debian: `apt install openjdk-17-jre-headless`, macOS: `brew install openjdk@17`), "
    "or point JAVA_HOME at one"
)


def find() -> str:
    """The path of java: in JAVA_HOME if that is set, else on the PATH. Raises if it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME is {home}, and holds no bin/java" if home else "there is no java on the PATH"
        raise LocalError("java-missing", "Java was not found", why=where, fix=_FIX)
    major = version(java)
    if major < OLDEST:
        raise LocalError(
            "java-too-old", f"{java} is Java {major}", why=f"Kafka, Spark and the registry need {OLDEST}", fix=_FIX
        )
    return java


def version(java: str) -> int:
    """The major version: 8 for 1.8.0_402, 17 for 17.0.15; 0 if java does not report one."""
    ran = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    said = re.search(r'version "(?:1\.)?(\d+)', ran.stderr)
    return int(said[1]) if said else 0
