from __future__ import annotations

import pytest

from leftfold.kafka.partitioner import murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "java"),
    [  # of Kafka's own UtilsTest
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_javas(key: bytes, java: int) -> None:
    assert murmur2(key) == java % 2**32
    assert partition_of(key, 7) == (java & 0x7FFFFFFF) % 7
