"""Hazards of declared topics: each provoked, with all that a person is told, and each absent where it just is not."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

import leftfold as lf
from leftfold.hazards.retention import DAY
from leftfold.hazards.topic_keys import moved_share
from leftfold.hazards.topics import CODES, RULES
from leftfold.kafka.observed import ObservedGroup, ObservedTopic
from leftfold.observe.observation import ObservedSubject
from leftfold.plan.diff import plan
from leftfold.plan.steps import CreateTopic
from leftfold.settings import Profile
from leftfold.units import spoken
from tests.clusters import seen, seen_topic
from tests.unit.hazards.judging import CHECKED, built, codes, facts, judged


class Click(lf.Event):
    user_id: str
    item: int
    at: datetime


class Item(lf.Event):
    item_id: str
    sku: str


def clicks(**options: Any) -> Any:
    return lf.Topic("clicks", Click, **{"key": Click.user_id, "time": Click.at, **options})


def items(key: Any = Item.item_id, **options: Any) -> Any:
    return lf.Topic("items", Item, key=key, compacted=True, **options)


def view_of(topic: Any) -> Any:
    class Activity(lf.Features, of=topic, by=Click.user_id):
        clicks_1h = lf.count("1h")

    return Activity


def table_of(topic: Any, key: Any = Item.item_id) -> Any:
    class Known(lf.Table, of=topic, by=key):
        what = Item.sku if key is Item.item_id else Item.item_id

    return Known


def sampled(*top: tuple[str, int]) -> Any:
    """What of a sample these rules look at."""
    return SimpleNamespace(topic="clicks", records=1_000, top_keys=top)


CONFIGS = {"retention.ms": "604800000", "retention.bytes": "-1", "max.message.bytes": "1048588"}


def there(
    name: str = "clicks", partitions: int = 6, replicas: int = 3, records: int = 600, **configs: str
) -> ObservedTopic:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    return seen_topic(name, partitions, replicas, {**CONFIGS, **named}, records=records)


def test_codes_are_sorted_out() -> None:
    assert len(set(CODES)) == len(CODES) == 15


def test_a_sound_topic() -> None:
    topic = clicks()
    assert codes(RULES, facts(topic, view_of(topic))) == []
    assert codes(RULES, facts(topic, view_of(topic), topics=[there()], samples=[sampled(("u1", 9))])) == []


# Keys ---------------------------------------------------------------------------------------------------------------


def test_growing_a_topic() -> None:
    topic = clicks(partitions=8)
    assert judged(RULES, facts(topic, view_of(topic), topics=[there()])) == [
        "! danger[growing-moves-keys] topic clicks: from 6 to 8 partitions 75% of all keys would change their "
        "partition\n"
        "    why: A key's partition is its hash modulo the number of partitions, and records that are there stay where "
        "they are. Old and new records of a moved key would have no order between them.\n"
        "    fix: declare clicks_v2 with partitions=8 and log_time='header'; copy clicks there: leftfold replay clicks "
        "--into clicks_v2 --follow; let the views read clicks_v2; stop the producers, let the copy reach the end, "
        "start them on clicks_v2"
    ]


def test_growing_a_compacted_topic() -> None:
    topic = items(partitions=12)
    assert judged(RULES, facts(topic, table_of(topic), topics=[there("items")])) == [
        "! danger[growing-moves-keys] topic items: from 6 to 12 partitions 50% of all keys would change their "
        "partition\n"
        "    why: A key's partition is its hash modulo the number of partitions, and records that are there stay where "
        "they are. Compaction then keeps an old record of a key beside the newest, and a deletion does not reach it.\n"
        "    fix: declare items_v2 with partitions=12 and log_time='header'; copy items there: leftfold replay items "
        "--into items_v2 --follow; let the views read items_v2; stop the producers, let the copy reach the end, start "
        "them on items_v2"
    ]


@pytest.mark.parametrize("found", [there(partitions=6, records=0), there(partitions=12), there(partitions=24)])
def test_a_topic_that_held_nothing_or_does_not_grow(found: ObservedTopic) -> None:
    topic = clicks(partitions=12)
    assert codes(RULES, facts(topic, view_of(topic), topics=[found])) == []


def test_nobody_grows_the_topic_of_another() -> None:
    topic = clicks(partitions=12, external=True)
    assert codes(RULES, facts(topic, view_of(topic), topics=[there()])) == []


@given(st.integers(1, 200), st.integers(1, 200))
def test_the_share_of_moved_keys_is_counted(before: int, after: int) -> None:
    hashes = before * after
    moved = sum(h % before != h % after for h in range(hashes))
    assert moved_share(before, after) == pytest.approx(moved / hashes, abs=hashes / 2**31)


def test_another_key_of_a_table() -> None:
    before, topic = table_of(items()), items(Item.sku)
    known = facts(topic, table_of(topic, Item.sku), topics=[there("items")], builds=[built(before)])
    build = built(before).id
    assert judged(RULES, known) == [
        f"! danger[key-changed] topic items: is keyed by sku, and by item_id when known {build} was built\n"
        "    why: Kafka keeps the newest record of each key it was given: records under the old key are never "
        "replaced, nor deleted, by records under the new one.\n"
        "    fix: declare items_v2 with the new key and copy the newest record of each thing into it, or keep "
        "key=Item.item_id"
    ]


def test_the_same_key_of_another_table() -> None:
    topic = items()
    old = built(table_of(topic), columns=[["sku", "sku", "string", False, None]])
    assert codes(RULES, facts(topic, table_of(topic), topics=[there("items")], builds=[old])) == []


def test_a_build_that_nobody_follows_says_nothing_of_the_key() -> None:
    topic = items(Item.sku)
    old = built(table_of(items()), followed=False)
    assert codes(RULES, facts(topic, table_of(topic, Item.sku), topics=[there("items")], builds=[old])) == []


def test_sampled_keys_that_are_not_the_declared_one() -> None:
    topic = clicks(key=Click.item)
    sample = sampled(("41", 300), ("u1", 200), ("042", 50))
    assert judged(RULES, facts(topic, view_of(topic), topics=[there()], samples=[sample])) == [
        "! danger[keys-not-as-declared] topic clicks: 250 of 1,000 sampled records have keys such as 'u1', '042', "
        "which are no (item: int)\n"
        "    why: Records that do not carry the declared key are spread over the partitions by something else, so "
        "those of one entity have no order between them. `leftfold why` looks for them only where their key belongs.\n"
        "    fix: let every producer key its records by the text of the declared fields, or declare the key that they "
        "use"
    ]


@pytest.mark.parametrize(
    ("key", "text", "right"),
    [
        ((Click.item,), "-7", True),
        ((Click.item,), "0", True),
        ((Click.item,), "7.0", False),
        ((Click.user_id,), "anything", True),
        ((Click.user_id, Click.item), "2:u11:7", True),
        ((Click.user_id, Click.item), "3:ü11:7", True),
        ((Click.user_id, Click.item), "u1:7", False),
        ((Click.user_id, Click.item), "2:u11:7x", False),
        ((Click.user_id, Click.item), "2:u11:x", False),
        ((Click.user_id, Click.item), "9:u1", False),
    ],
)
def test_which_text_a_key_has(key: Any, text: str, right: bool) -> None:
    topic = clicks(key=key)
    found = codes(RULES, facts(topic, view_of(topic), topics=[there()], samples=[sampled((text, 9))]))
    assert found == ([] if right else ["keys-not-as-declared"])


# Copies -------------------------------------------------------------------------------------------------------------


def test_a_topic_declared_with_few_copies() -> None:
    topic = clicks(replication=2)
    assert judged(RULES, facts(topic, view_of(topic))) == [
        "! danger[few-copies-declared] topic clicks: is to have 2 copies (replication=2)\n"
        "    why: With two copies min.insync.replicas is 1: while one broker is down, an acknowledged record is on one "
        "disk only, and lost with it.\n"
        "    fix: leave replication= out: three copies, two of which have every acknowledged record"
    ]


def test_a_profile_that_allows_few_copies() -> None:
    topic, table = clicks(), items()
    small = Profile(name="laptop", replication=1)
    assert judged(RULES, facts(topic, table, view_of(topic), table_of(table), profile=small)) == [
        "! danger[few-copies-declared] profile laptop: topics are to have 1 copy (replication = 1): clicks, items\n"
        "    why: The records are lost with the disk that holds them, and cannot be read or written while its broker "
        "is down.\n"
        "    fix: take replication out of [profile.laptop], unless its records may be lost"
    ]


def test_enough_copies_or_copies_that_are_there_already() -> None:
    topic = clicks(replication=1)
    assert codes(RULES, facts(topic, view_of(topic), topics=[there(replicas=1)])) == []
    three = clicks()
    assert codes(RULES, facts(three, view_of(three), profile=Profile(name="p", replication=3))) == []
    assert codes(RULES, facts(topic, view_of(topic), profile=CHECKED)) == []


def test_fewer_copies_than_declared() -> None:
    topic = clicks()
    assert judged(RULES, facts(topic, view_of(topic), topics=[there(replicas=1)])) == [
        "! danger[copies-below-declared] topic clicks: has 1 copy, the declaration says 3; a record counts as written "
        "when 1 of them has it (min.insync.replicas)\n"
        "    why: apply moves no replica. The records are lost with the disk that holds them, and its broker stops "
        "writers while it is down.\n"
        "    fix: name 3 brokers for each partition in a file and give it to kafka-reassign-partitions.sh "
        "--reassignment-json-file FILE --execute, then leftfold apply sets min.insync.replicas=2; or declare "
        "replication=1"
    ]
    (two,) = judged(RULES, facts(topic, view_of(topic), topics=[there(replicas=2)]))
    assert "has 2 copies, the declaration says 3; a record counts as written when 1 of them has it" in two
    assert "While a broker is down, an acknowledged record may be on one disk only, and lost with it.\n" in two
    both = there(replicas=2, min_insync_replicas="2")
    (tight,) = judged(RULES, facts(topic, view_of(topic), topics=[both]))
    assert "when 2 of them have it (min.insync.replicas)\n" in tight
    assert "One broker that is down stops writers.\n" in tight
    assert "--execute; or declare replication=2" in tight
    five = clicks(replication=5)
    (three,) = judged(RULES, facts(five, view_of(five), topics=[there()]))
    assert "may be on 2 disks only, and lost with them.\n" in three


def test_as_many_copies_as_the_profile_allows() -> None:
    topic = clicks()
    small = Profile(name="laptop", replication=1)
    assert codes(RULES, facts(topic, view_of(topic), topics=[there(replicas=1)], profile=small)) == []
    assert codes(RULES, facts(topic, view_of(topic), topics=[there(replicas=4)])) == []


# How long -----------------------------------------------------------------------------------------------------------


def test_lateness_beyond_retention() -> None:
    topic = clicks(retention="4d", lateness="5d")
    assert judged(RULES, facts(topic, view_of(topic))) == [
        "! danger[lateness-beyond-retention] topic clicks: accepts events up to 5d late, and keeps records for 4d\n"
        "    why: A window's tile stays open for as long as an event of it can still be accepted. By then its first "
        "records may be deleted, and neither a repair nor a re-driven record can compute it anew.\n"
        '    fix: declare retention="5d" for clicks, or a shorter lateness'
    ]
    fits = clicks(retention="5d", lateness="5d")
    assert codes(RULES, facts(fits, view_of(fits))) == []


def test_retention_below_the_longest_outage() -> None:
    topic = clicks(retention="71h")
    assert judged(RULES, facts(topic, view_of(topic))) == [
        "! danger[retention-below-outage] topic clicks: keeps records for 2d 23h, and a reader may be down for 3d\n"
        "    why: Records that are deleted before a reader comes back are lost to it. A view then stops with "
        "log-overtaken, and can only start over with what is left.\n"
        '    fix: declare retention="3d" for clicks'
    ]
    assert codes(RULES, facts(topic, view_of(topic), downtime=71 * 3_600 * 1_000_000)) == []


def test_the_retention_of_another_is_what_is_found() -> None:
    topic = clicks(external=True)
    found = there(retention_ms=str(86_400_000))
    (told,) = judged(RULES, facts(topic, view_of(topic), topics=[found]))
    assert "keeps records for 1d, and a reader may be down for 3d\n" in told
    assert told.endswith("fix: ask the owner of clicks for retention.ms=259200000 (3d)")
    short = clicks(external=True, retention="1d")
    assert codes(RULES, facts(short, view_of(short), topics=[there(retention_ms="-1")])) == []
    assert codes(RULES, facts(short, view_of(short))) == []  # it is missing, which is a problem of its own


def test_retention_by_size() -> None:
    topic = clicks()
    found = there(retention_bytes="1073741824")
    assert judged(RULES, facts(topic, view_of(topic), topics=[found])) == [
        "! danger[retention-by-size] topic clicks: keeps records for 7d, but at most 1,073,741,824 bytes in a "
        "partition\n"
        "    why: Whichever comes first deletes. A burst, or one partition that gets more than others, loses records "
        "before their time.\n"
        "    fix: kafka-configs.sh --topic clicks --alter --add-config retention.bytes=-1, and disks that hold it"
    ]
    (told,) = judged(RULES, facts(topic, view_of(topic), log_retention_bytes=5))
    assert "at most 5 bytes in a partition (the brokers' log.retention.bytes)\n" in told
    assert codes(RULES, facts(topic, view_of(topic), topics=[there()], log_retention_bytes=5)) == []


def test_a_topic_of_tables_that_deletes() -> None:
    topic = items(external=True)
    found = there("items", cleanup_policy="compact,delete", delete_retention_ms=str(7 * 86_400_000))
    assert judged(RULES, facts(topic, table_of(topic), topics=[found])) == [
        "! danger[table-topic-deletes] topic items: has cleanup.policy=compact,delete and retention.ms=604800000 (7d)\n"
        "    why: A key that is not written for that long leaves the log, and no deletion tells a table of it: the "
        "running build keeps the row, and the next one does not have it.\n"
        "    fix: ask the owner of items for cleanup.policy=compact"
    ]
    endless = replace(found, configs={**found.configs, "retention.ms": "-1"})
    assert codes(RULES, facts(topic, table_of(topic), topics=[endless])) == []
    compacted = replace(found, configs={**found.configs, "cleanup.policy": "compact"})
    assert codes(RULES, facts(topic, table_of(topic), topics=[compacted])) == []


def test_tombstones_below_the_longest_outage() -> None:
    topic = items(external=True)
    found = there("items", cleanup_policy="compact", delete_retention_ms="86400000")
    assert judged(RULES, facts(topic, table_of(topic), topics=[found])) == [
        "! danger[tombstones-below-outage] topic items: a deletion can be read for 1d, and a reader may be down for "
        "3d\n"
        "    why: A reader that comes back later never sees that the key was deleted, and keeps its row for ever. "
        "Nothing in the log tells that it missed something.\n"
        "    fix: ask the owner of items for delete.retention.ms=259200000"
    ]
    assert codes(RULES, facts(topic, table_of(topic), topics=[found], downtime=DAY)) == []


def test_tombstones_of_a_topic_of_ours() -> None:
    topic = items()
    (told,) = judged(RULES, facts(topic, table_of(topic), downtime=8 * DAY))
    assert "a deletion can be read for 7d, and a reader may be down for 8d\n" in told
    assert told.endswith("fix: after an outage of more than 7d start its tables with leftfold run --fresh")
    known = facts(topic, table_of(topic), downtime=7 * DAY)
    assert codes(RULES, known) == []
    nothing = seen(3, {}, {"items-value": ObservedSubject(None, registered=False)})
    steps = plan(known.catalog, known.profile, nothing).steps
    (configs,) = (dict(step.configs) for step in steps if isinstance(step, CreateTopic) and step.name == "items")
    assert configs["delete.retention.ms"] == str(7 * DAY // 1_000)  # as this rule takes it to be


# Personal data ------------------------------------------------------------------------------------------------------

NO_LIMIT = "9223372036854775807"  # Kafka's default of max.compaction.lag.ms


class Customer(lf.Event):
    customer_id: str
    email: lf.Personal[str] = Field(max_length=200)
    name: lf.Personal[str] | None = None
    tier: int = 0


class Visit(lf.Event):
    customer_id: lf.Personal[str]
    page: str
    at: datetime


def customers(**options: Any) -> Any:
    return lf.Topic("customers", Customer, key=Customer.customer_id, compacted=True, **options)


def visits(**options: Any) -> Any:
    return lf.Topic("visits", Visit, key=Visit.customer_id, time=Visit.at, **options)


def known_of(topic: Any, *stores: Any) -> Any:
    class Known(lf.Table, of=topic, by=Customer.customer_id, to=[lf.Online(), *stores]):
        email = Customer.email
        tier = Customer.tier

    return Known


def tiers_of(topic: Any, *stores: Any) -> Any:
    class Tiers(lf.Table, of=topic, by=Customer.customer_id, to=[lf.Online(), *stores]):
        tier = Customer.tier

    return Tiers


def visitors_of(topic: Any) -> Any:
    class Visitors(lf.Features, of=topic, by=Visit.customer_id):
        visits_1h = lf.count("1h")

    return Visitors


def table_there(name: str = "customers", **configs: str) -> ObservedTopic:
    safe: dict[str, Any] = {"cleanup_policy": "compact", "delete_retention_ms": str(7 * 86_400_000)}
    return there(name, **{**safe, **configs})


def test_deleted_personal_data_lingers() -> None:
    topic = customers(external=True)
    found = table_there(max_compaction_lag_ms=NO_LIMIT)
    assert judged(RULES, facts(topic, known_of(topic), topics=[found])) == [
        "! danger[personal-data-lingers] topic customers: holds Customer.email, Customer.name, and what is deleted or "
        "replaced may stay on disk for ever (max.compaction.lag.ms=9223372036854775807)\n"
        "    why: Kafka compacts a partition once enough of it is out of date, and never the segment that is written "
        "to. Until then whoever may read the topic can read what was deleted.\n"
        "    fix: ask the owner of customers for max.compaction.lag.ms=604800000 (7d)"
    ]
    longer = table_there(max_compaction_lag_ms="2592000001")
    (told,) = judged(RULES, facts(customers(), known_of(customers()), topics=[longer], profile=CHECKED))
    assert "may stay on disk for 30d 1ms (max.compaction.lag.ms=2592000001)\n" in told


@pytest.mark.parametrize("configs", [{"max_compaction_lag_ms": "2592000000"}, {}])
def test_personal_data_that_goes_within_a_month_or_whose_lag_nobody_told(configs: dict[str, str]) -> None:
    topic = customers(external=True)
    assert codes(RULES, facts(topic, known_of(topic), topics=[table_there(**configs)])) == []


def test_only_marked_fields_linger() -> None:
    topic = items(external=True)
    found = table_there("items", max_compaction_lag_ms=NO_LIMIT)
    assert codes(RULES, facts(topic, table_of(topic), topics=[found])) == []


def test_retention_bounds_what_compaction_leaves() -> None:
    topic = customers(external=True)
    both = {"cleanup_policy": "compact,delete", "max_compaction_lag_ms": NO_LIMIT}
    brief = table_there(**both, retention_ms=str(30 * 86_400_000))
    assert codes(RULES, facts(topic, known_of(topic), topics=[brief])) == ["table-topic-deletes"]
    longer = table_there(**both, retention_ms=str(90 * 86_400_000))
    told = judged(RULES, facts(topic, known_of(topic), topics=[longer]))[1]
    assert "may stay on disk for 90d (retention.ms=7776000000)\n" in told
    endless = table_there(**both, retention_ms="-1")
    (told,) = judged(RULES, facts(topic, known_of(topic), topics=[endless]))
    assert "may stay on disk for ever (max.compaction.lag.ms=9223372036854775807)\n" in told


def test_a_plan_bounds_what_lingers_in_topics_of_ours() -> None:
    topic = customers()
    found = table_there(max_compaction_lag_ms=NO_LIMIT)
    assert codes(RULES, facts(topic, known_of(topic))) == []
    assert codes(RULES, facts(topic, known_of(topic), topics=[found])) == []


def test_a_plan_cannot_go_below_what_compaction_has_to_wait() -> None:
    topic = customers()
    slow = table_there(max_compaction_lag_ms=NO_LIMIT, min_compaction_lag_ms=str(45 * 86_400_000))
    (told,) = judged(RULES, facts(topic, known_of(topic), topics=[slow]))
    assert "may stay on disk for 45d (min.compaction.lag.ms=3888000000)\n" in told
    assert told.endswith(
        "fix: kafka-configs.sh --topic customers --alter --add-config min.compaction.lag.ms=0, then leftfold apply"
    )


def test_a_changelog_of_others_with_personal_data() -> None:
    topic, sound = customers(), table_there(max_compaction_lag_ms="604800000")
    beside = table_there("known.changelog", max_compaction_lag_ms=NO_LIMIT)
    view = known_of(topic, lf.Changelog())
    (told,) = judged(RULES, facts(topic, view, topics=[sound, beside], profile=CHECKED))
    assert told.startswith("! danger[personal-data-lingers] topic known.changelog: holds Customer.email, and what is")
    assert codes(RULES, facts(topic, view, topics=[sound, beside])) == []  # a plan sets it
    assert codes(RULES, facts(topic, known_of(topic), topics=[sound, beside], profile=CHECKED)) == []
    plain = replace(beside, name="tiers.changelog")
    assert codes(RULES, facts(topic, tiers_of(topic, lf.Changelog()), topics=[sound, plain], profile=CHECKED)) == []


def test_personal_data_that_is_kept_for_ever() -> None:
    topic = visits(retention="36500d")
    assert judged(RULES, facts(topic, visitors_of(topic))) == [
        "! danger[personal-data-for-ever] topic visits: holds Visit.customer_id, and keeps every record for ever "
        "(retention.ms=3153600000000)\n"
        "    why: No deletion reaches a record of a topic that is not compacted: only retention removes it. What a "
        "person asks to have erased stays in every copy.\n"
        '    fix: declare retention="30d" for visits, or as long as its windows need; what is needed for longer '
        "belongs in a compacted topic, where producer.delete reaches it"
    ]
    years = visits(retention="3650d")
    assert codes(RULES, facts(years, visitors_of(years))) == []
    unmarked = clicks(retention="36500d")
    assert codes(RULES, facts(unmarked, view_of(unmarked))) == []


def test_personal_data_that_is_archived() -> None:
    topic = visits(archive=True)
    assert judged(RULES, facts(topic, visitors_of(topic))) == [
        "! danger[personal-data-for-ever] topic visits: holds Visit.customer_id, and its archive keeps every record "
        "for ever (archive=True)\n"
        "    why: Retention does not reach the archive. What a person asks to have erased has to be deleted from its "
        "table, in every version of it (DELETE, then VACUUM).\n"
        "    fix: declare visits without archive=True, or erase there what is asked for"
    ]


def test_personal_data_that_others_keep_for_ever() -> None:
    topic = visits(external=True)
    (told,) = judged(RULES, facts(topic, visitors_of(topic), topics=[there("visits", retention_ms="-1")]))
    assert "keeps every record for ever (retention.ms=-1)\n" in told
    assert "    fix: ask the owner of visits for retention.ms=2592000000 (30d); what is needed for longer" in told
    assert codes(RULES, facts(topic, visitors_of(topic), topics=[there("visits")])) == []
    untold = seen_topic("visits", records=600)
    assert codes(RULES, facts(topic, visitors_of(topic), topics=[untold])) == []


def test_personal_data_that_was_re_driven() -> None:
    topic = visits()
    again = there("visits.redrive", partitions=1, records=12, retention_ms="-1")
    known = facts(topic, visitors_of(topic), topics=[there("visits"), again])
    assert judged(RULES, known) == [
        "! danger[personal-data-for-ever] topic visits.redrive: holds 12 re-driven records of visits, with "
        "Visit.customer_id, and keeps them for ever (retention.ms=-1)\n"
        "    why: A build that computes a tile anew needs them for as long as the log has all of that tile. After that "
        "nothing does, and nothing deletes them.\n"
        "    fix: once visits has deleted the records that they stand for (it keeps 7d), kafka-delete-records.sh "
        '--offset-json-file FILE, with {"partitions": [{"topic": "visits.redrive", "partition": 0, "offset": 12}], '
        '"version": 1} in it'
    ]
    nothing = replace(again, spread=tuple(replace(p, start=p.end) for p in again.spread))
    assert codes(RULES, facts(topic, visitors_of(topic), topics=[there("visits"), nothing])) == []
    unmarked, other = clicks(), replace(again, name="clicks.redrive")
    assert codes(RULES, facts(unmarked, view_of(unmarked), topics=[there(), other])) == []
    bounded = replace(again, configs={**again.configs, "retention.ms": "604800000"})
    theirs = facts(topic, visitors_of(topic), topics=[there("visits"), bounded], profile=CHECKED)
    assert codes(RULES, theirs) == []


def test_refused_records_that_others_keep_for_ever() -> None:
    topic = visits()
    rejects = there("visits.rejects", partitions=1, cleanup_policy="compact,delete", retention_ms="-1")
    known = facts(topic, visitors_of(topic), topics=[there("visits"), rejects], profile=CHECKED)
    assert judged(RULES, known) == [
        "! danger[personal-data-for-ever] topic visits.rejects: holds whole records of visits, with "
        "Visit.customer_id, and keeps them for ever (retention.ms=-1)\n"
        "    why: Every record there has a key of its own, so only retention removes it. What is deleted from visits "
        "stays here.\n"
        "    fix: ask the owner of visits.rejects for retention.ms=2592000000 (30d)"
    ]
    assert codes(RULES, facts(topic, visitors_of(topic), topics=[there("visits"), rejects])) == []  # a plan sets it
    bounded = replace(rejects, configs={**rejects.configs, "retention.ms": "604800000"})
    assert codes(RULES, replace(known, observed=facts(topics=[there("visits"), bounded]).observed)) == []


# The rest -----------------------------------------------------------------------------------------------------------


def test_the_producers_clock() -> None:
    topic = clicks(log_time="producer")
    assert judged(RULES, facts(topic, view_of(topic))) == [
        "! danger[producers-clock] topic clicks: its log time is the producers' (log_time='producer')\n"
        "    why: The clocks of producers decide what is late and what retention deletes, and move the watermark: "
        "clocks an hour apart can stop a view (accepted-records-swept). A store that lost its data is computed anew "
        "only while the log still has all of its records.\n"
        "    fix: let the brokers stamp records (message.timestamp.type=LogAppendTime, log_time='broker'), or keep the "
        "producers' clocks together and never send old records with new ones"
    ]
    table = items(log_time="producer")
    assert codes(RULES, facts(table, table_of(table))) == []


class Note(lf.Event):
    user_id: str = Field(max_length=40)
    text: str = Field(min_length=1, max_length=262_000)
    more: str
    at: datetime


def notes(**options: Any) -> Any:
    return lf.Topic("notes", Note, key=Note.user_id, time=Note.at, **options)


def read(topic: Any) -> Any:
    class Notes(lf.Features, of=topic, by=Note.user_id):
        notes_1h = lf.count("1h")

    return Notes


def test_a_record_beyond_the_limit() -> None:
    topic = notes()
    found = there("notes", max_message_bytes="1000000")
    assert judged(RULES, facts(topic, read(topic), topics=[found])) == [
        "· warning[record-beyond-limit] topic notes: the max_length rules of Note allow 1,048,160 bytes, the topic "
        "takes 1,000,000\n"
        "    why: A record that obeys its event's rules can be too large, unless it compresses well: the broker "
        "refuses it, and the producer gives it back to its caller as not delivered.\n"
        "    fix: lower max_length to what is really sent"
    ]
    assert codes(RULES, facts(topic, read(topic), message_max_bytes=1_048_159)) == ["record-beyond-limit"]
    assert codes(RULES, facts(topic, read(topic), message_max_bytes=1_048_160)) == []
    assert codes(RULES, facts(topic, read(topic))) == []  # nobody told the limit
    assert codes(RULES, facts(notes(format="json"), topics=[found], groups=[group("notes")])) == []


def group(topic: str) -> ObservedGroup:
    return ObservedGroup("billing", "EMPTY", 0, {}, {topic: {0: 5}})


def test_a_topic_without_a_reader() -> None:
    assert judged(RULES, facts(clicks(), topics=[there()])) == [
        "· warning[topic-without-reader] topic clicks: no view or consumer reads it, and no other consumer group does\n"
        "    why: It costs disk and network, and what is wrong with its records is noticed by nobody. A reader that "
        "commits no offsets is not seen here.\n"
        "    fix: declare a view or a consumer of it, or take the declaration out"
    ]
    assert codes(RULES, facts(clicks(), topics=[there()], groups=[group("clicks")])) == []
    assert codes(RULES, facts(clicks(), topics=[there()], groups=[group("other")])) == ["topic-without-reader"]


def test_spans_as_people_say_them() -> None:
    assert [spoken(us) for us in (0, 1_000, 90_000_000, DAY + 3_600_000_000)] == ["nothing", "1ms", "1m 30s", "1d 1h"]
