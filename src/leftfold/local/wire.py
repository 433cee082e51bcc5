"""The only Kafka request that is encoded by hand: Metadata, version 1, about no topics.

Its answer names the brokers that are registered and not fenced, as the asked broker sees them. That is the meaning of
"ready", and asking for it needs neither a client library nor a guess from a log line.
"""

from __future__ import annotations

import struct

from leftfold.local.service import connect

_METADATA, _VERSION, _CORRELATION = 3, 1, 7
_CLIENT = b"leftfold"
_LARGEST = 1 << 20  # a local cluster's answer is a few hundred bytes; a larger one is not from a broker


def live_brokers(port: int) -> dict[int, int]:
    """The port of each living broker by its node id, as the broker at `port` reports. Empty if it does not answer."""
    header = struct.pack(">hhih", _METADATA, _VERSION, _CORRELATION, len(_CLIENT)) + _CLIENT
    request = header + struct.pack(">i", 0)
    try:
        with connect(port) as link:
            link.sendall(struct.pack(">i", len(request)) + request)
            stream = link.makefile("rb")
            (size,) = struct.unpack(">i", stream.read(4))
            return parse(stream.read(size)) if 0 < size <= _LARGEST else {}
    except (OSError, struct.error):  # refused, too slow, closed in mid-answer, or not a broker
        return {}


def parse(answer: bytes) -> dict[int, int]:
    """The brokers in a Metadata v1 answer. The parts after them (controller, topics) are not read."""
    correlation, count = struct.unpack_from(">ii", answer)
    if correlation != _CORRELATION:
        return {}
    at, brokers = 8, {}
    for _ in range(count):
        node, host_length = struct.unpack_from(">ih", answer, at)
        at += 6 + host_length
        port, rack_length = struct.unpack_from(">ih", answer, at)
        at += 6 + max(rack_length, 0)  # -1 means that there is no rack
        brokers[node] = port
    return brokers
