"""The verb inspect: reviews a whole Kafka cluster, whatever is declared. It only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from leftfold.cli.output import document, json_option, profile_option, say
from leftfold.cli.plan_options import downtime_option
from leftfold.cli.plan_output import count_of, show_hazards
from leftfold.units import counted

if TYPE_CHECKING:
    from leftfold.hazards.cluster_review import ClusterReview


@click.command()
@click.option("--bootstrap", metavar="HOST:PORT", help="Brokers of a cluster that no profile names.")
@downtime_option
@profile_option
@json_option
def inspect(bootstrap: str | None, downtime: int | None, profile: str | None, as_json: bool) -> None:
    """Review a whole Kafka cluster for hazards. Every topic and group on it, whatever is declared. It only reads."""
    import leftfold
    from leftfold.hazards.cluster_review import review_cluster
    from leftfold.hazards.hazard import DOWNTIME
    from leftfold.settings import Kafka

    if bootstrap and profile:
        raise click.UsageError("give one of --bootstrap and --profile")
    kafka = Kafka(bootstrap=bootstrap) if bootstrap else leftfold.open(profile=profile).kafka
    review = review_cluster(kafka, downtime=downtime or DOWNTIME)
    if as_json:
        _document(review)
    else:
        _show(review)


def _document(review: ClusterReview) -> None:
    seen = review.cluster
    document(
        "inspect",
        cluster=seen.id,
        brokers=len(seen.brokers),
        topics=len(seen.topics),
        partitions=sum(topic.partitions for topic in seen.topics.values()),
        groups=len(seen.groups),
        sampled=list(review.sampled),
        hazards=[hazard.as_json() for hazard in review.hazards],
    )


def _show(review: ClusterReview) -> None:
    seen = review.cluster
    partitions = sum(topic.partitions for topic in seen.topics.values())
    say(
        f"cluster {seen.id}: {counted(len(seen.brokers), 'broker')}, {counted(len(seen.topics), 'topic')} with "
        f"{counted(partitions, 'partition')}, {counted(len(seen.groups), 'group')}"
    )
    watched = [group.watched_s for group in seen.groups.values() if group.watched_s]
    again = f", and at {counted(len(watched), 'group')} again after {watched[0]} s" if watched else ""
    say(f"looked at the newest records of {counted(len(review.sampled), 'topic')}{again}")
    show_hazards(review.hazards)
    say(count_of(review.hazards) if review.hazards else "✓ nothing to warn of")
