"""Why a topic has the partitions it has, in words: order, throughput, what each carries, who can share."""

from __future__ import annotations

import math
from collections.abc import Iterator

from leftfold.plan.sizing.line import number
from leftfold.plan.sizing.load import Load
from leftfold.plan.sizing.log_size import partitions


def explain_partitions(load: Load, *, key: str) -> tuple[str, ...]:
    """`key` is what the topic is keyed by, in the singular: "driver"."""
    return tuple(_sentences(load, key))


def _sentences(load: Load, key: str) -> Iterator[str]:
    count = partitions(load)
    needed = max(1, math.ceil(load.rate / load.consumer_rate))
    yield (
        f"order: all records of one {key} are in one partition, which one consumer of a group reads from front to "
        f"back; so the records of a {key} are seen in the order in which they were logged. Between two {key}s there "
        "is no order."
    )
    ratio = load.rate / load.consumer_rate
    does = f"{number(load.rate)} records/s ÷ {number(load.consumer_rate)} of one consumer = {number(ratio)}"
    if count > needed:
        yield f"throughput: {does}, so {needed} would do; {count} is {count - needed} more than throughput needs."
    else:
        yield f"throughput: {does}, so {needed} at the least; there are {count}."
    carried = f"{number(load.rate)} ÷ {count} = {number(load.rate / count)} records/s"
    if load.keys is not None:
        carried += f", of {number(load.keys)} ÷ {count} = {number(load.keys / count)} {key}s"
    yield f"each partition carries: {carried}, if no {key} is much busier than the others."
    yield (
        f"sharing: up to {count} consumers of a group share the work; one more would have nothing to read. Each view "
        "and each group reads all of it for itself."
    )
    yield (
        f"later: growing to {2 * count} partitions sends about half of the {key}s to another one, where their new "
        f"records can be read before their old ones; so partitions are chosen for the load to come."
    )
