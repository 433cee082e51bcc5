"""Hazards of declared views and their builds: each provoked, with all that a person is told, and each near miss."""

from __future__ import annotations

import datetime as dt
import json
import random
import secrets
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from random import randint
from typing import Any
from unittest import mock

import pytest

import leftfold as lf
from leftfold.fold.definition import LAYOUT, STATE, Definition, fingerprint
from leftfold.hazards.repeatable import unrepeatable
from leftfold.hazards.retention import DAY
from leftfold.hazards.view_builds import _of_this_release
from leftfold.hazards.views import CODES, RULES, repair_needs
from leftfold.kafka.observed import ObservedTopic
from leftfold.observe.observation import ObservedBuild
from leftfold.settings import Profile
from tests.clusters import seen_topic
from tests.unit.hazards.judging import built, codes, facts, judged

STORE = Path(__file__).parents[2] / "data" / f"layout-{LAYOUT}-state-{STATE}" / "store.json"


class Click(lf.Event):
    user_id: str
    device_id: str
    price: float
    at: datetime


def clicks(name: str = "clicks", **options: Any) -> Any:
    return lf.Topic(name, Click, **{"key": Click.user_id, "time": Click.at, **options})


def view_of(topic: Any, window: str | None = "24h", **options: Any) -> Any:
    class Activity(lf.Features, of=topic, by=Click.user_id):
        spend = lf.sum(Click.price, window, **options)

    return Activity


def there(name: str = "clicks", *, gone: int = 0, partitions: int = 6, **configs: str) -> ObservedTopic:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    found = seen_topic(name, partitions, 3, {"retention.ms": "604800000", **named}, records=60_000)
    return replace(found, spread=tuple(replace(part, start=gone) for part in found.spread))


def test_codes_are_sorted_out() -> None:
    assert len(set(CODES)) == len(CODES) == 9


def test_a_sound_view() -> None:
    topic = clicks()
    view = view_of(topic)
    known = facts(topic, view, topics=[there(gone=4)], builds=[built(view)])
    assert codes(RULES, known) == []


# What the log must keep ---------------------------------------------------------------------------------------------


def test_a_window_beyond_retention() -> None:
    topic = clicks()
    assert judged(RULES, facts(topic, view_of(topic, "30d"))) == [
        "! danger[window-beyond-retention] view activity: its longest window is 30d, and topic clicks keeps 7d\n"
        "    why: A new build starts with what the log still has, so for 23d its windows lack what happened before. A "
        "store that lost its data cannot be computed anew.\n"
        '    fix: declare retention="35d" for clicks, or a window of at most 7d'
    ]


def test_a_window_beyond_retention_with_an_archive() -> None:
    topic = clicks(archive=True)
    assert judged(RULES, facts(topic, view_of(topic, "30d"))) == [
        "· warning[window-beyond-retention] view activity: its longest window is 30d, and topic clicks keeps 7d\n"
        "    why: A new build that leftfold run makes starts with what the log still has, so for 23d its windows lack "
        "what happened before. The archive has it: a repair reads it, and so does a rebuild.\n"
        "    fix: leftfold rebuild activity when its definition has changed"
    ]
    assert codes(RULES, facts(topic, view_of(topic, "7d"))) == []


def test_a_lifetime_with_an_archive() -> None:
    topic = clicks(archive=True)
    assert judged(RULES, facts(topic, view_of(topic, None))) == [
        "· warning[lifetime-beyond-retention] view activity: spend is of everything that ever happened, and topic "
        "clicks keeps 7d\n"
        "    why: A new build that leftfold run makes starts with the last 7d. The archive has what was before: a "
        "repair reads it, and so does a rebuild.\n"
        "    fix: leftfold rebuild activity when its definition has changed"
    ]
    (gone,) = judged(RULES, facts(topic, view_of(topic, None), topics=[there(gone=4)]))
    assert gone.endswith("fix: leftfold rebuild activity reads the archive, too")


def test_a_window_as_long_as_retention() -> None:
    topic = clicks()
    assert judged(RULES, facts(topic, view_of(topic, "7d"))) == [
        "· warning[repair-beyond-retention] view activity: computing its rows anew takes 7d 4h 2m of the log, and "
        "topic clicks keeps 7d\n"
        "    why: A store that lost its data is computed anew from the log, and a window starts on a step, so it "
        "reaches a little further back than it is long. Once retention has deleted anything, the repair is refused "
        "(repair-needs-history).\n"
        '    fix: declare retention="8d" for clicks, or a shorter window'
    ]


def test_a_window_and_an_outage_beyond_retention() -> None:
    topic = clicks(retention="8d")
    assert judged(RULES, facts(topic, view_of(topic, "7d"))) == [
        "· warning[repair-after-outage] view activity: computing its rows anew takes 7d 4h 2m of the log before it "
        "stopped; topic clicks, which keeps 8d, has 5d of that after an outage of 3d\n"
        "    why: A store that lost its data is computed anew up to where the view stood. After a long outage the log "
        "no longer reaches that far back, and the repair is refused (repair-needs-history).\n"
        '    fix: declare retention="11d" for clicks, or start over with leftfold run --fresh activity if that happens'
    ]
    longer = clicks(retention="11d")
    assert codes(RULES, facts(longer, view_of(longer, "7d"))) == []
    assert codes(RULES, facts(topic, view_of(topic, "7d"), downtime=DAY // 2)) == []


def test_the_retention_of_another_is_what_is_found() -> None:
    topic = clicks(external=True, retention="60d")
    (told,) = judged(RULES, facts(topic, view_of(topic, "30d"), topics=[there()]))
    assert told.endswith("fix: ask the owner of clicks for retention.ms=3024000000 (35d), or a window of at most 7d")
    for found in ([there(retention_ms="-1")], []):
        assert codes(RULES, facts(topic, view_of(topic, "30d"), topics=found)) == []


@pytest.mark.parametrize(("window", "options"), [(None, {}), ("1h", {"log_time": "producer"})])
def test_a_repair_that_needs_everything(window: str | None, options: dict[str, Any]) -> None:
    definition: Definition = view_of(clicks(**options), window).__leftfold_definition__
    assert repair_needs(definition) is None


def test_a_lifetime_feature() -> None:
    topic = clicks()
    view = view_of(topic, None)
    assert judged(RULES, facts(topic, view, topics=[there(gone=4)], builds=[built(view)])) == [
        "! danger[lifetime-beyond-retention] view activity: spend is of everything that ever happened, and topic "
        "clicks keeps 7d\n"
        "    why: What the build holds of older records is nowhere else: a changed definition, or a store that lost "
        "its data, starts again with the last 7d.\n"
        '    fix: declare retention="36500d" for clicks (a hundred years), or declare a window that fits'
    ]
    theirs = clicks(external=True)
    known = facts(theirs, view_of(theirs, None), topics=[there()])
    assert judged(RULES, known)[0].endswith(
        "fix: ask the owner of clicks for retention.ms=-1, or declare a window that fits"
    )
    assert codes(RULES, facts(theirs, view_of(theirs, None), topics=[there(retention_ms="-1")])) == []


def test_a_lifetime_feature_whose_past_is_gone() -> None:
    topic = clicks()
    assert judged(RULES, facts(topic, view_of(topic, None), topics=[there(gone=4)])) == [
        "! danger[lifetime-history-gone] view activity: spend is of everything that ever happened, and 24 offsets of "
        "topic clicks are deleted\n"
        "    why: A new build begins with what the log still has, and no reader can tell a count of everything from a "
        "count since then.\n"
        "    fix: declare a window that the log still has, or let who reads it know since when it counts"
    ]
    assert codes(RULES, facts(topic, view_of(topic, None), topics=[there()])) == ["lifetime-beyond-retention"]


def test_a_function_that_keeps_its_groups_for_ever() -> None:
    topic = clicks()

    @lf.view(topic, by="user_id", keep_forever=True)
    def total(clicks: Any) -> Any:
        return clicks.groupBy("user_id").count()

    (told,) = judged(RULES, facts(topic, total))
    assert told.startswith(
        "! danger[lifetime-beyond-retention] view total: what it groups (keep_forever=True) is of everything that ever "
        "happened, and topic clicks keeps 7d\n"
    )


def test_features_inside_formulas_are_named_by_their_formula() -> None:
    topic = clicks()

    class Share(lf.Features, of=topic, by=Click.user_id):
        share = lf.count("1h") / lf.count(None)

    assert "view share: share is of everything" in judged(RULES, facts(topic, Share))[0]


# Builds -------------------------------------------------------------------------------------------------------------


def test_a_changed_view() -> None:
    topic = clicks()
    before = built(view_of(topic, "12h"))
    assert judged(RULES, facts(topic, view_of(topic), topics=[there(gone=4)], builds=[before])) == [
        f"· warning[new-build] view activity: means something else than {before.id}: a new build reads 59,976 offsets "
        "of clicks\n"
        "    why: Nothing of one definition's rows is taken over into another's, and readers follow the old build "
        "until the new one has caught up.\n"
        f"    fix: leftfold run builds it; if the change was not meant, undo it and {before.id} goes on"
    ]


def test_a_changed_view_outside_the_local_profile() -> None:
    topic, profile = clicks(), Profile(name="prod")
    before = built(view_of(topic, "12h"))
    assert judged(RULES, facts(topic, view_of(topic), topics=[there()], builds=[before], profile=profile)) == [
        f"· warning[new-build] view activity: means something else than {before.id}: a new build reads 60,000 offsets "
        "of clicks\n"
        "    why: Nothing of one definition's rows is taken over into another's, and readers follow the old build "
        "until leftfold promote moves them.\n"
        f"    fix: leftfold rebuild activity builds it beside {before.id}, which a run of the old declaration keeps up "
        "to date meanwhile; if the change was not meant, undo it"
    ]


def test_a_changed_view_whose_past_is_gone() -> None:
    topic = clicks(retention="20d")
    before = built(view_of(topic, "12h"))
    known = facts(topic, view_of(topic, "10d"), topics=[there(gone=4)], builds=[before])
    assert judged(RULES, known)[0] == (
        f"! danger[new-build] view activity: means something else than {before.id}: a new build reads 59,976 offsets "
        "of clicks; of its longest window, 10d, clicks has 7d\n"
        "    why: Nothing of one definition's rows is taken over into another's, and readers follow the old build "
        "until the new one has caught up. Then they see windows that are whole only after 3d.\n"
        f"    fix: leftfold run builds it; if the change was not meant, undo it and {before.id} goes on"
    )
    whole = facts(topic, view_of(topic, "10d"), topics=[there()], builds=[before])
    assert judged(RULES, whole)[0].startswith("· warning[new-build]")


def test_a_view_that_goes_back_to_a_build_of_its_own() -> None:
    topic = clicks()
    other, mine = built(view_of(topic, "12h")), built(view_of(topic), followed=False)
    assert codes(RULES, facts(topic, view_of(topic), topics=[there()], builds=[other, mine])) == []
    assert codes(RULES, facts(topic, view_of(topic), topics=[there()], builds=[replace(other, followed=False)])) == []


def test_a_build_of_another_release() -> None:
    topic = clicks()
    view = view_of(topic)
    before = replace(built(view), id="0123456789ab-0d1f6c2e")
    assert judged(RULES, facts(topic, view, topics=[there()], builds=[replace(before, layout=1)])) == [
        "· warning[build-of-another-release] view activity: 0123456789ab-0d1f6c2e has rows of layout 1, not 3: a new "
        "build reads 60,000 offsets of clicks\n"
        "    why: Another release of Leftfold made it, and this one cannot continue it. Readers of each release refuse "
        "the rows of the other (unknown-layout).\n"
        "    fix: run the view with this release, and give its readers this release once the new build has caught up"
    ]
    (readable,) = judged(RULES, facts(topic, view, topics=[there()], builds=[replace(before, layout=2)]))
    assert "Readers of this release read the rows of both; readers of the other refuse the new ones" in readable
    assert readable.endswith("run the view with this release, and give its readers this release before that")
    assert judged(RULES, facts(topic, view, topics=[there()], builds=[before])) == [
        "· warning[build-of-another-release] view activity: 0123456789ab-0d1f6c2e has a state of another layout: a new "
        "build reads 60,000 offsets of clicks\n"
        "    why: Another release of Leftfold made it, and this one cannot continue it. Readers follow the old build "
        "until the new one has caught up.\n"
        "    fix: run the view with this release"
    ]
    assert codes(RULES, facts(topic, view, topics=[there()], builds=[built(view)])) == []


def test_a_function_of_which_a_build_is_there() -> None:
    """What it means is known only to Spark, so a changed function is not told; another release is."""
    topic = clicks()

    @lf.view(topic, by="user_id")
    def newest(clicks: Any) -> Any:
        return clicks.select("user_id", "price")

    latest = built(table(), code="what it did")
    ours = replace(latest, view="newest", id=f"{_fingerprint(latest)}-0d1f6c2e")
    assert codes(RULES, facts(topic, newest, builds=[ours])) == []
    other = replace(ours, id="0123456789ab-0d1f6c2e")
    assert codes(RULES, facts(topic, newest, builds=[other])) == ["build-of-another-release"]


def table() -> Any:
    class Known(lf.Table, of=lf.Topic("known", Click, key=Click.user_id, compacted=True), by=Click.user_id):
        price = Click.price

    return Known


def _fingerprint(build: ObservedBuild) -> str:
    return fingerprint([LAYOUT, STATE, build.definition])


# Topics together ----------------------------------------------------------------------------------------------------


def test_topics_that_are_not_partitioned_alike() -> None:
    web, app = clicks("web"), clicks("app", key=Click.device_id, partitions=12)
    assert judged(RULES, facts(web, app, view_of((web, app)))) == [
        "· warning[topics-not-co-partitioned] view activity: its topics are partitioned in different ways: web (6 by "
        "user_id), app (12 by device_id)\n"
        "    why: Records of one key lie under different partition numbers. The view is right, because Spark brings a "
        "key's records together; a consumer that joins the topics partition by partition would miss some.\n"
        "    fix: give the topics the same key and number of partitions, unless only views read them together"
    ]
    alike = clicks("web"), clicks("app")
    assert codes(RULES, facts(*alike, view_of(alike))) == []
    assert codes(RULES, facts(*alike, view_of(alike), topics=[there("web", partitions=12)])) == [
        "topics-not-co-partitioned"
    ]


# Functions ----------------------------------------------------------------------------------------------------------


def helper(rows: Any) -> Any:
    return rows.where(f"price > {randint(1, 2)}")


def test_a_function_that_is_not_repeatable() -> None:
    topic = clicks()

    @lf.view(topic, by="user_id")
    def lucky(clicks: Any) -> Any:
        from pyspark.sql import functions as F

        return clicks.withColumn("luck", F.rand()).withColumn("seen", F.lit(dt.datetime.now(dt.UTC)))

    assert judged(RULES, facts(topic, lucky)) == [
        f"! danger[view-not-repeatable] view lucky: calls {called}\n"
        "    why: It gives something else each time: after a restart, or when a batch runs again after a crash, the "
        "same records make other rows.\n"
        "    fix: take times from the events, and make ids from their fields"
        for called in ("rand()", "datetime.datetime.now()")
    ]


def test_a_stream_that_is_not_repeatable_is_told_once() -> None:
    topic = clicks()

    @lf.stream(topic, event=Click)
    def sampled(clicks: Any) -> Any:
        return helper(clicks)

    class First(lf.Features, of=sampled, by=Click.user_id):
        n = lf.count("1h")

    class Second(lf.Features, of=sampled, by=Click.device_id):
        n = lf.count("1h")

    found = [hazard for rule in RULES for hazard in rule(facts(topic, First, Second))]
    assert [(h.code, h.subject, h.what) for h in found] == [
        ("view-not-repeatable", "stream sampled", "calls random.randint()")
    ]
    line = helper.__code__.co_firstlineno + 1
    assert str(found[0].source) == f"test_views.py:{line}"


def _sql(df: Any) -> Any:
    return df.selectExpr("uuid() as id", "user_id").where("at < current_timestamp")


def _python(df: Any) -> Any:
    from time import time as seconds

    return df, time.time(), uuid.uuid4(), random.random(), secrets.token_hex(), seconds()


def _inner(df: Any) -> Any:
    from pyspark.sql import functions as F

    @F.udf("string")
    def made(text: str) -> str:
        return text + uuid.uuid4().hex

    return df.select(made("user_id"), F.unix_timestamp())


SESSION = mock.Mock()


def _sound(df: Any) -> Any:
    from pyspark.sql import functions as F

    generator = random.Random(42)
    now = df.now
    text = F.lit("rand() and now()")
    return (
        df.where("user_id = 'uuid()'").select(F.expr("rand_code + 1"), F.unix_timestamp("at"), text),
        now(),
        generator.random(),
        dt.datetime(2026, 1, 5, tzinfo=dt.UTC),
        uuid.uuid5(uuid.NAMESPACE_DNS, "a"),
        secrets.compare_digest("a", "b"),
        SESSION.random.now(),
    )


def _shadowed(random: Any, time: Any) -> Any:
    return random.random(), time.time()


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (_sql, ["current_timestamp()", "uuid()"]),
        (_python, ["time.time()", "uuid.uuid4()", "random.random()", "secrets.token_hex()", "time.time()"]),
        (_inner, ["uuid.uuid4()", "unix_timestamp()"]),
        (_sound, []),
        (_shadowed, []),
        (json.dumps, []),
    ],
)
def test_which_calls_are_found(function: Callable[..., Any], expected: list[str]) -> None:
    assert sorted(told for told, _ in unrepeatable(function)) == sorted(expected)


def test_a_kept_store_is_of_this_release() -> None:
    """The builds of a real store, so that the rule reads ids as they are written."""
    manifests = [json.loads(v) for v in _texts(json.loads(STORE.read_text())) if '"definition"' in v]
    assert manifests
    for document in manifests:
        build = ObservedBuild("v", document["build"], True, 0, document["kind"], document["definition"])
        assert _of_this_release(build)
        assert not _of_this_release(replace(build, definition={**build.definition, "view": "other"}))


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for part in value.values() for text in _texts(part)]
    if isinstance(value, list):
        return [text for part in value for text in _texts(part)]
    return [value] if isinstance(value, str) and value.startswith("{") else []
