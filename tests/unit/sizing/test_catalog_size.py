"""The arithmetic of sizing: what it says, that it is right, and that it refuses what no cluster carries.

`LEFTFOLD_GOLDEN=write pytest tests/unit/sizing/test_catalog_size.py` writes tests/golden/sizing.txt; read the diff.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftfold.declare.catalog import Catalog
from leftfold.declare.topic import Topic
from leftfold.errors import DeclarationError, ProjectError, RunError
from leftfold.fold.definition import Definition, Key
from leftfold.fold.durations import SECOND
from leftfold.kafka.sample import Sample
from leftfold.run import probed, watermark
from leftfold.sizing import constants as kept
from leftfold.sizing import widths
from leftfold.sizing.catalog_size import Known, size_catalog
from leftfold.sizing.constants import Constants
from leftfold.sizing.fit import Timed, fit, median
from leftfold.sizing.line import Line, table
from leftfold.sizing.load import Given, Load, estimated_bytes, load_of
from leftfold.sizing.log_size import explain_partitions, log_advice, log_lines, partitions
from leftfold.sizing.pace import Shape, batch, full, steady
from leftfold.sizing.view_size import expected_tiles, size_view
from leftfold.sizing.wrong_tool import Needs, wrong_tools
from leftfold.store.layout import Build
from leftfold.store.redis.names import Names
from leftfold.units import amount
from tests.clusters import seen_topic

GOLDEN = Path(__file__).parents[2] / "golden" / "sizing.txt"
WRITE = os.environ.get("LEFTFOLD_GOLDEN") == "write"
# Round numbers, so that a person can check the golden text in their head; not a machine's.
ROUND = replace(
    Constants(),
    records_per_core=50_000,
    tiles_per_core=20_000,
    batch_s=0.5,
    large_batch_s=1.0,
    state_packing=0.5,
    entity_bytes=100,
    tile_bytes=4,
    loose_tile_bytes=80,
    store_tiles=100_000,
    broker_bytes_s=100e6,
    producer_rate=50_000,
    producer_bytes_s=50e6,
    source="round numbers",
)
BIG = Load(rate=600_000, record_bytes=1_000)
DRIVERS = Load(rate=10_000, record_bytes=200, keys=10_000, partitions=20)
SMALL = Load(rate=200, record_bytes=300)
CATALOG = probed.catalog()
# The topic BYTES has no reader, and TOPIC has one view.
EVERYTHING = Needs(
    no_replay=frozenset({probed.BYTES}),
    queues=frozenset({probed.BYTES}),
    answers=frozenset({probed.BYTES}),
    largest={probed.BYTES: 20e6},
    freshness={probed.VIEW: 0.05},
)


def activity() -> Definition:
    definition = CATALOG.view(probed.VIEW).definition
    assert isinstance(definition, Definition)
    return definition


def results(lines: tuple[Line, ...]) -> dict[str, float]:
    return {line.name: line.result for line in lines}


# What it says ------------------------------------------------------------------------------------------------------


def test_golden() -> None:
    parts = {
        "600,000 records/s of 1 kB, 50,000 records/s per consumer": table(log_lines(BIG, ROUND)),
        "10,000 drivers, a position a second, 20 partitions by driver": "\n".join(
            explain_partitions(DRIVERS, key="driver")
        ),
        "a view of 20,000 records/s and a million people": str(
            size_catalog(CATALOG, {probed.TOPIC: Known(given=Given(rate=20_000, keys=1_000_000))}, ROUND)
        ),
        "everything that makes it the wrong tool": "\n".join(
            str(wrong.advice) for wrong in wrong_tools(CATALOG, {probed.BYTES: SMALL}, EVERYTHING, ROUND)
        ),
    }
    text = "\n\n".join(f"# {heading}\n{body}" for heading, body in parts.items()) + "\n"
    if WRITE:
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_twelve_partitions_at_the_least_and_the_arithmetic_is_shown() -> None:
    line = log_lines(BIG, ROUND)[0]
    assert line.result == 12
    assert "600,000 ÷ 50,000 = 12 partitions" in str(line)
    assert partitions(BIG) == 24  # an hour's outage, caught up within an hour, takes as much again
    assert partitions(replace(BIG, downtime_s=0)) == 12


def test_disk_network_and_brokers() -> None:
    found = results(log_lines(replace(BIG, readers=2), ROUND))
    assert found["disk in all"] == pytest.approx(600_000 * 1_000 * 7 * 86_400 * 3 * 1.3)
    assert found["network in, all brokers"] == 600e6 * 3
    assert found["network out, all brokers"] == 600e6 * (2 + 3 - 1)
    assert found["brokers"] == 18 + 1
    assert found["disk per broker"] == pytest.approx(found["disk in all"] / 19)


def test_a_compacted_topic_holds_its_keys_and_not_its_history() -> None:
    table_load = Load(rate=100, record_bytes=200, keys=1_000_000, retention_s=None)
    assert results(log_lines(table_load, ROUND))["disk in all"] == pytest.approx(1e6 * 200 * 3 * 1.3 * 2)
    assert "disk in all" not in results(log_lines(replace(table_load, keys=None), ROUND))


def test_the_ride_share_case_is_explained() -> None:
    order, throughput, carries, sharing, later = explain_partitions(DRIVERS, key="driver")
    assert "one driver are in one partition" in order
    assert "Between two drivers there is no order" in order
    assert "10,000 records/s ÷ 50,000 of one consumer = 0.2, so 1 would do; 20 is 19 more" in throughput
    assert "10,000 ÷ 20 = 500 records/s, of 10,000 ÷ 20 = 500 drivers" in carries
    assert "up to 20 consumers" in sharing
    assert "half of the drivers" in later


def test_partitions_that_are_too_few_are_not_called_more_than_needed() -> None:
    throughput = explain_partitions(replace(BIG, partitions=6), key="user")[1]
    assert "12 at the least; there are 6" in throughput
    (advice,) = log_advice(replace(BIG, partitions=6), ROUND)
    assert advice.code == "partitions-few"
    assert "100,000 in each" in advice.what
    assert list(log_advice(BIG, ROUND)) == []


def test_too_few_brokers_are_told() -> None:
    (advice,) = log_advice(replace(BIG, brokers=3), ROUND)
    assert advice.code == "brokers-few"
    assert "19 brokers, and there are 3" in advice.what


@pytest.mark.parametrize(
    ("asked", "limit"),
    [
        (Load(rate=1, record_bytes=1, partitions=100_000, brokers=3), "4,000 per broker"),
        (Load(rate=1, record_bytes=1, partitions=250_000, brokers=300), "200,000 per cluster"),
        (Load(rate=1, record_bytes=1, partitions=250_000), "200,000 per cluster"),
    ],
)
def test_more_partitions_than_kafka_carries_are_refused(asked: Load, limit: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        log_lines(asked, ROUND)
    assert refused.value.code == "too-many-partitions"
    assert limit in refused.value.what


def test_as_many_as_kafka_carries_are_not_refused() -> None:
    log_lines(Load(rate=1, record_bytes=1, partitions=4_000, brokers=3), ROUND)
    with pytest.raises(DeclarationError, match="4,001 partitions"):
        log_lines(Load(rate=1, record_bytes=1, partitions=4_001, brokers=3), ROUND)


# Batches -----------------------------------------------------------------------------------------------------------

shapes = st.builds(
    Shape,
    st.sampled_from([(300.0,), (300.0, 3_600.0), (10.0, 300.0, 0.0)]),
    st.one_of(st.none(), st.integers(1, 10**7)),
    st.integers(1, 100),
)


@given(shapes, st.floats(1, 1e6), st.integers(1, 64))
def test_the_steady_batch_reproduces_itself(shape: Shape, rate: float, cores: int) -> None:
    """T = b / (1 - λ/R), and a batch of λT records takes T."""
    found = steady(shape, rate, cores, ROUND)
    if math.isinf(found.seconds) or rate / found.rate > 0.95:
        return
    assert found.seconds == pytest.approx(found.fixed_s / (1 - rate / found.rate), rel=1e-3)
    again = batch(shape, rate * found.seconds, found.seconds, cores, ROUND)
    if again.fixed_s == found.fixed_s:
        assert again.seconds == pytest.approx(found.seconds, rel=1e-3)


@given(shapes, st.floats(1, 1e5), st.integers(1, 32))
def test_more_cores_are_never_slower_and_more_records_never_faster(shape: Shape, rate: float, cores: int) -> None:
    once = steady(shape, rate, cores, ROUND).seconds
    assert steady(shape, rate, cores + 1, ROUND).seconds <= once * 1.001
    assert steady(shape, rate * 1.5, cores, ROUND).seconds >= once * 0.999


@given(shapes, st.floats(1, 1e6), st.floats(0, 1e5))
def test_records_never_change_more_tiles_than_they_have(shape: Shape, records: float, span_s: float) -> None:
    assert 0 < shape.tiles(records, span_s) <= records * len(shape.steps) * 1.0001


def test_tiles_are_shared_by_the_records_of_a_key() -> None:
    assert Shape((300.0,), 1, 6).tiles(1_000, 0) == pytest.approx(1)
    assert Shape((300.0,), 10**6, 6).tiles(1_000, 0) == pytest.approx(1_000, rel=1e-3)
    assert Shape((300.0,), None, 6).tiles(1_000, 0) == 1_000
    assert Shape((300.0,), 1, 6).tiles(10**6, 3_000) == pytest.approx(11)


def test_a_batch_that_the_driver_writes_has_another_fixed_cost() -> None:
    shape = Shape((300.0, 3_600.0), None, 6)
    assert batch(shape, (5_000 - 24) / 2, 1, 1, ROUND).fixed_s == ROUND.batch_s
    assert batch(shape, (5_000 - 24) / 2 + 1, 1, 1, ROUND).fixed_s == ROUND.large_batch_s


def test_a_view_that_cannot_keep_up_is_told_and_so_is_a_busy_one() -> None:
    load = Load(rate=20_000, record_bytes=100, keys=None, partitions=6)
    one = size_view(activity(), load, ROUND, cores=1)
    assert one.result("batch time T") == math.inf
    assert one.result("catch-up") == math.inf
    assert "= never" in table(one.lines)
    assert one.advice[0].code == "view-falls-behind"
    # R of a core is 1 / (1/50,000 + 2/20,000) = 8,333, so three are at 0.8 and four at 0.6
    assert [advice.code for advice in size_view(activity(), load, ROUND, cores=3).advice] == ["view-busy"]
    slow = replace(load, catch_up_s=86_400)
    assert [advice.code for advice in size_view(activity(), slow, ROUND, cores=4).advice] == []


def test_the_largest_batch_bounds_the_rate() -> None:
    """A load below R is too much all the same where batches may not grow as large as it asks for."""
    shape = Shape((300.0,), None, 1)
    tight = replace(shape, most_offsets=1_000)
    largest = full(tight, 3_000, 1, ROUND)
    assert largest.through < 3_000 < largest.rate
    assert math.isinf(steady(tight, 3_000, 1, ROUND).seconds)
    assert steady(shape, 3_000, 1, ROUND).seconds < 1.5


def test_cores_are_enough_to_keep_up_and_more_to_catch_up() -> None:
    load = Load(rate=20_000, record_bytes=100, keys=1_000_000, partitions=6)
    sized = size_view(activity(), load, ROUND)
    keep_up, catch_up = (int(sized.result(name)) for name in ("Spark cores", "cores, to catch up"))
    assert sized.result("load λ/R") <= ROUND.busy
    assert size_view(activity(), load, ROUND, cores=keep_up - 1).result("load λ/R") > ROUND.busy
    assert size_view(activity(), load, ROUND, cores=catch_up).result("catch-up") <= 3_600
    assert size_view(activity(), load, ROUND, cores=catch_up - 1).result("catch-up") > 3_600
    assert keep_up < catch_up
    assert sized.advice == ()


def test_where_no_number_of_cores_is_enough_none_is_named() -> None:
    """Batches that pay five seconds for four seconds of records never keep up, whatever the cores."""
    load = Load(rate=200_000, record_bytes=100, partitions=1)
    sized = size_view(activity(), load, replace(ROUND, batch_s=5, large_batch_s=5))
    assert sized.result("Spark cores") == 1
    assert "no number" in next(line.formula for line in sized.lines if line.name == "Spark cores")
    assert "cores, to catch up" not in [line.name for line in sized.lines]
    assert sized.advice[0].code == "view-falls-behind"
    assert "most_offsets" in sized.advice[0].fix


def test_no_number_of_cores_catches_up_too_soon() -> None:
    """Seven times the rate is a batch of four seconds in less than its fixed cost."""
    load = Load(rate=1e6, record_bytes=100, partitions=20, catch_up_s=600, declared_rate=1e6)
    sized = size_view(activity(), load, ROUND)
    (slow,) = (advice for advice in sized.advice if advice.code == "view-slow-to-catch-up")
    assert "most_offsets" in slow.fix


def test_a_slow_catch_up_is_told() -> None:
    load = Load(rate=20_000, record_bytes=100, partitions=6, catch_up_s=600)
    (advice,) = size_view(activity(), load, ROUND, cores=4).advice
    assert advice.code == "view-slow-to-catch-up"
    assert "cores" in advice.fix


def test_a_view_that_is_not_as_fresh_as_asked_is_told() -> None:
    load = Load(rate=1_000, record_bytes=100, partitions=6, freshness_s=1.42)
    late = size_view(activity(), load, replace(ROUND, batch_s=0.7), cores=4)
    assert [advice.code for advice in late.advice] == ["view-not-fresh"]
    assert size_view(activity(), load, ROUND, cores=4).advice == ()


def test_catch_up_is_the_backlog_over_what_is_left() -> None:
    load = Load(rate=5_000, record_bytes=100, keys=None, partitions=6, downtime_s=7_200)
    sized = size_view(activity(), load, ROUND, cores=2)
    left = sized.result("rate of full batches") - 5_000
    assert sized.result("catch-up") == pytest.approx(5_000 * 7_200 / left)


# State and memory --------------------------------------------------------------------------------------------------


def test_state_rows_of_busy_keys() -> None:
    """Every tile has a record: (10 min + 1 h) / 5 min + 1 of one step, and / 1 h + 1 of the other."""
    load = Load(rate=1e6, record_bytes=100, keys=1_000, partitions=6)
    sized = size_view(activity(), load, ROUND, cores=64)
    assert sized.result("live tiles per key") == pytest.approx(15 + 70 / 60 + 1)
    assert sized.result("state rows") == pytest.approx(1_000 * (15 + 70 / 60 + 1) + 24)


def test_state_rows_of_quiet_keys_are_about_their_records() -> None:
    """A key with a record in a week has almost no tile twice: a row per step and record of the time that is kept."""
    load = Load(rate=1, record_bytes=100, keys=600_000, partitions=6)
    sized = size_view(activity(), load, ROUND)
    assert sized.result("state rows") - 24 == pytest.approx(4_200 + 300 + 4_200 + 3_600, rel=0.01)


def test_memory_is_bounded_by_the_rings() -> None:
    definition = activity()
    load = Load(rate=1_000, record_bytes=100, keys=50_000, partitions=6)
    sized = size_view(definition, load, ROUND)
    tiles = sum(definition.rings.values())
    assert sized.result("tiles per entity, at most") == tiles
    each = sized.result("online bytes per entity")
    assert tiles * 20 < each < tiles * 60  # most of them are packed
    assert sized.result("online bytes, at most") == pytest.approx(50_000 * each)
    # If no tile were packed by us, Redis would pack a row of short values or not.
    loose, tight = (replace(ROUND, loose_tiles=1_000, packed_tiles=most) for most in (128, 512))
    by_fields = size_view(definition, load, loose).result("online bytes per entity")
    assert by_fields > tiles * 80
    assert size_view(definition, load, tight).result("online bytes per entity") == pytest.approx(
        by_fields - tiles * (80 - 4)
    )


def test_memory_of_quiet_keys_levels_off() -> None:
    """A row drops what no read reaches when it is packed: a key with a record a day has those of its longest window."""
    definition, day = activity(), 86_400.0
    load = Load(rate=1_000 / day, record_bytes=100, keys=1_000, partitions=6)
    after = [sum(expected_tiles(definition, load, days * day).values()) for days in (1, 30, 3_650)]
    assert after[0] == pytest.approx(1, rel=0.05)  # the tile of an hour; that of 5 minutes is reached for an hour
    assert after[1] == after[2] == pytest.approx(7, rel=0.05)


def test_without_keys_there_are_no_totals() -> None:
    sized = size_view(activity(), Load(rate=1_000, record_bytes=100, partitions=6), ROUND)
    names = [line.name for line in sized.lines]
    assert "online bytes per entity" in names
    assert "online bytes, at most" not in names
    assert "state rows" not in names


def test_the_names_of_rows_are_as_long_as_those_in_the_store() -> None:
    definition = activity()
    prefix = Names("prod", definition.view).row_prefix(Build(definition, "01234567-89ab").id)
    assert widths.row_name(definition.view, "prod", 1) == len(prefix) + widths.TEXT


def test_constants_are_those_of_the_code() -> None:
    from leftfold.declare.acceptance import OUTCOMES
    from leftfold.spark.sinks.online import DRIVER_ROWS
    from leftfold.store.packer import LOOSE_TILES

    assert Constants().driver_rows == DRIVER_ROWS
    assert Constants().loose_tiles == LOOSE_TILES
    assert Constants().state_slack_s * SECOND == watermark.SLACK
    assert len(OUTCOMES) == 4


# Where the numbers come from ---------------------------------------------------------------------------------------


def with_rate(rate: str | None) -> Topic[Any]:
    event: Any = CATALOG.topic(probed.TOPIC).event
    return Topic("probe", event, key="user_id", time="at", rate=rate)


SAMPLE = Sample("probe", 600, 60, {0: 40, 1: 20}, 120.0, 300, 50, 0, 0, (), by_producer=0, ahead=0)


@pytest.mark.parametrize(
    ("declared", "sample", "said", "expected"),
    [
        ("20k/s", SAMPLE, 5.0, (5, "given")),
        ("20k/s", SAMPLE, None, (20_000, "declared")),
        (None, SAMPLE, None, (60, "sampled")),
    ],
)
def test_the_rate_is_taken_from_the_first_that_knows_it(
    declared: str | None, sample: Sample | None, said: float | None, expected: tuple[float, str]
) -> None:
    load = load_of(with_rate(declared), readers=1, sample=sample, given=Given(rate=said))
    assert load is not None
    assert (load.rate, load.rate_from) == expected


def test_a_topic_of_unknown_rate_is_named_and_not_guessed() -> None:
    assert load_of(CATALOG.topic(probed.TOPIC), readers=1) is None
    sizing = size_catalog(CATALOG, {}, ROUND)
    assert (sizing.topics, sizing.views) == ((), ())
    assert sizing.unknown == (probed.TOPIC, probed.BYTES)
    assert sizing.unsized == (probed.VIEW,)
    assert "nothing tells their rate: topics probe, probe_bytes" in str(sizing)
    assert "views probe_activity" in str(sizing)


def test_keys_of_a_view_that_is_keyed_otherwise_are_not_those_of_its_topic() -> None:
    known = {probed.TOPIC: Known(given=Given(rate=1_000, keys=50))}

    def keys(catalog: Catalog, said: dict[str, int] | None = None) -> int | None:
        (view,) = size_catalog(catalog, known, ROUND, keys=said).views
        return view.load.keys

    declared = CATALOG.view(probed.VIEW)
    by_item = replace(activity(), keys=(Key("item_id", "string"),))
    other = replace(CATALOG, views={probed.VIEW: replace(declared, definition=by_item)})
    assert keys(CATALOG) == 50
    assert keys(other) is None
    assert keys(other, {probed.VIEW: 7}) == 7


def test_record_bytes_are_what_the_log_holds_of_them() -> None:
    topic, seen = with_rate("1/s"), seen_topic("probe", records=6_000, size=300_000)

    def size(**known: object) -> float:
        load = load_of(topic, readers=1, **known)  # type: ignore[arg-type]
        assert load is not None
        return load.record_bytes

    assert size(observed=seen, sample=SAMPLE) == 50
    assert size(sample=SAMPLE) == 120
    assert size(given=Given(record_bytes=77), observed=seen) == 77
    assert size() == estimated_bytes(topic.event, topic)
    assert 50 < estimated_bytes(topic.event, topic) < 120


def test_as_json_holds_no_number_that_json_has_not() -> None:
    load = {probed.TOPIC: Known(given=Given(rate=20_000))}
    document = size_catalog(CATALOG, load, ROUND, cores=1).as_json()
    text = json.dumps(document, allow_nan=False)
    assert json.loads(text)["views"][0]["advice"][0]["code"] == "view-falls-behind"


def test_amounts() -> None:
    shown = [amount(*one) for one in [(1.42e15, "B"), (999, "B"), (0.4321, "s"), (3_600, "s"), (1, "partitions")]]
    assert shown == ["1.42 PB", "999 B", "0.432 s", "1 h", "1 partition"]
    assert amount(math.inf, "s") == "never"


# Constants ---------------------------------------------------------------------------------------------------------


def test_constants_survive_a_file(tmp_path: Path) -> None:
    file = kept.place(tmp_path, "prod")
    assert kept.read(file) == Constants()
    kept.write(ROUND, file)
    assert kept.read(file) == ROUND
    assert file == tmp_path / "prod" / "constants.json"


@pytest.mark.parametrize("spoilt", ["{", "[]", "{}", '{"version": 1}', "0 for a rate", "a version to come"])
def test_constants_that_cannot_be_used_are_refused(tmp_path: Path, spoilt: str) -> None:
    document = ROUND.as_json()
    texts = {
        "0 for a rate": json.dumps({**document, "records_per_core": 0}),
        "a version to come": json.dumps({**document, "version": 2}),
    }
    file = tmp_path / "constants.json"
    file.write_text(texts.get(spoilt, spoilt))
    with pytest.raises(ProjectError) as refused:
        kept.read(file)
    assert refused.value.code == "bad-constants"


# The fit -----------------------------------------------------------------------------------------------------------


def timed(fixed: float, records: float, tiles: float) -> Timed:
    return Timed(records, tiles, fixed + records / 80_000 + tiles / 30_000)


def test_the_fit_finds_what_batches_cost() -> None:
    costs = fit(
        small=timed(0.3, 300, 180),
        large=timed(0.6, 3_000, 200),
        records=timed(0.6, 120_000, 1_000),
        tiles=timed(0.6, 18_000, 36_000),
    )
    assert (costs.small_s, costs.large_s) == pytest.approx((0.3, 0.6))
    assert (1 / costs.record_s, 1 / costs.tile_s) == pytest.approx((80_000, 30_000))


def test_a_fit_that_makes_no_sense_is_refused() -> None:
    slow = replace(timed(0.6, 18_000, 36_000), seconds=0.1)
    with pytest.raises(RunError) as refused:
        fit(small=timed(0.3, 300, 180), large=timed(0.6, 3_000, 200), records=timed(0.6, 120_000, 1_000), tiles=slow)
    assert refused.value.code == "probe-unclear"
    same = timed(0.6, 3_000, 200)
    with pytest.raises(RunError, match="does not add up"):
        fit(small=same, large=same, records=same, tiles=same)


def test_one_batch_that_was_held_up_does_not_count() -> None:
    assert median([Timed(10, 5, 1.0), Timed(10, 5, 1.1), Timed(10, 5, 30.0)]) == Timed(10, 5, 1.1)
