"""Kafka's own command-line tools, run as a person runs them: what ours is compared with."""

from __future__ import annotations

import subprocess

import leftfold
from leftfold import jars
from leftfold.local import java

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"


def lines(app: leftfold.App, tool: str, *asked: str) -> list[str]:
    """Return the lines that a tool prints, without empty ones."""
    classes = f"{jars.ensure('kafka')}/*:{jars.ensure('tools')}/*"
    done = subprocess.run(
        [java.find(), *java.BRIEF, "-cp", classes, tool, "--bootstrap-server", app.kafka.bootstrap, *asked],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return [line for line in done.stdout.splitlines() if line.strip()]
