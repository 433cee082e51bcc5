"""The Java that runs brokers and registry: found, and new enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from leftfold.errors import LocalError

OLDEST = 17  # Kafka 4 brokers, Spark 4 and the registry all need it

# A process with a full heap must end, not go on half alive; IPv4 only, so that 127.0.0.1 is all it listens on.
FLAGS = ("-XX:+ExitOnOutOfMemoryError", "-Djava.net.preferIPv4Stack=true", "-Djava.awt.headless=true")
# For what works a second and then idles: no second compiler, no collector threads.
BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_FIX = (
    "install Java 17 (Debian: `apt install openjdk-17-jre-headless`, macOS: `brew install openjdk@17`), "
    "or point JAVA_HOME at one"
)


def find() -> str:
    """The java to run: JAVA_HOME's, else the PATH's. Refused if missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME is {home}, and holds no bin/java" if home else "there is no java on the PATH"
        raise LocalError("java-missing", "Java was not found", why=where, fix=_FIX)
    found = version(java)
    if found < OLDEST:
        raise LocalError(
            "java-too-old", f"{java} is Java {found}", why=f"Kafka, Spark and the registry need {OLDEST}", fix=_FIX
        )
    return java


def version(java: str) -> int:
    """The major version: 8 for 1.8.0_402, 17 for 17.0.15; 0 if it does not say."""
    ran = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    said = re.search(r'version "(?:1\.)?(\d+)', ran.stderr)
    return int(said[1]) if said else 0
