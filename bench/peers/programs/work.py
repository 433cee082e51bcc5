"""The work of every handler: decode a record, then count it, or note its number with one atomic append."""

import io
import json
import os
import sys
import time

import fastavro

SETTINGS = json.loads(sys.argv[1])
BOOTSTRAP, TOPIC, GROUP = SETTINGS["bootstrap"], SETTINGS["topic"], SETTINGS["group"]
COPIES = SETTINGS["copies"]  # the topic to copy records to, exactly once; None without
SESSION_MS = SETTINGS["session_ms"]
_schema = fastavro.parse_schema(SETTINGS["schema"])
_notes = os.open(SETTINGS["notes"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
_seen, _began = 0, (0.0, 0.0)


def handle(value):
    """Handle the value of a record. When measured, the process ends with the last one, or when its time is over."""
    record = fastavro.schemaless_reader(io.BytesIO(value[5:]), _schema, None)
    if SETTINGS["measured"]:
        _count()
    else:
        os.write(_notes, b"%07d\n" % record["number"])


def _count():
    global _seen, _began  # noqa: PLW0603 # a handler is a function, and this is its state
    if _seen == 0:
        _began = time.process_time(), time.monotonic()
    _seen += 1
    over = _seen % 100 == 0 and time.monotonic() - _began[1] > SETTINGS["most_s"]
    if over or _seen == SETTINGS["records"]:
        cpu, wall = time.process_time() - _began[0], time.monotonic() - _began[1]
        os.write(_notes, json.dumps({"records": _seen, "cpu": cpu, "wall": wall}).encode())
        os._exit(0)
