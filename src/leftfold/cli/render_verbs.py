"""The verb render: writes the project as Kubernetes manifests."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leftfold.cli.given import Pair
from leftfold.cli.output import document, json_option, next_step, profile_option, say

if TYPE_CHECKING:
    from leftfold.app import App
    from leftfold.render.documents import Manifest

F = TypeVar("F", bound=Callable[..., Any])


def _of_form(what: str, pattern: str) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """A callback that checks an option's form. Kubernetes checks it too, but only when it starts a pod."""

    def checked(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(pattern, value):
            raise click.BadParameter(f"{value!r} is no {what}")
        return value

    return checked


_NAME = _of_form("name for Kubernetes", r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_CLASS = _of_form("name of a storage class", r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SIZE = _of_form("size such as 100Gi", r"[1-9][0-9]*(Mi|Gi|Ti)")
_CPU = _of_form("number of cores such as 2 or 500m", r"[1-9][0-9]*m?")
_HEAP = _of_form("memory such as 4g or 512m", r"[1-9][0-9]*[mg]")
_VERSION = _of_form("version such as 4.3.1", r"[0-9]+\.[0-9]+\.[0-9]+")
_PATH = _of_form("absolute path", r"/[^\s:]*")
_IMAGE = _of_form("name of an image", r"\S+")
_GROUP = r"([a-z0-9][-a-z0-9]*)=(\w+(?:,\w+)*)"
_COUNT = click.IntRange(min=1)


class Replicas(click.ParamType[tuple[str, int]]):
    """A declared consumer and a number of pods, as in notify=3."""

    name = "CONSUMER=NUMBER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        name, count = Pair(self.name).convert(value, param, ctx)
        if not re.fullmatch(r"[1-9][0-9]{0,4}", count):
            self.fail(f"{value!r} is not {self.name}, as in notify=3", param, ctx)
        return name, int(count)


def _groups(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    parsed = [(text, re.fullmatch(_GROUP, text)) for text in texts]
    for text, match in parsed:
        if match is None:
            raise click.BadParameter(f"{text!r} is not NAME=VIEW,VIEW with a NAME of small letters, digits and -")
    return tuple((match[1], tuple(match[2].split(","))) for _, match in parsed if match)


def _pod_options(verb: F) -> F:
    return _with_options(
        verb,
        click.option(
            "--secret",
            callback=_NAME,
            metavar="NAME",
            help="Secret whose keys become environment variables. [default: PROJECT-secrets]",
        ),
        click.option(
            "--ca-secret",
            callback=_NAME,
            metavar="NAME",
            help="Secret with the file that the profile's kafka.ca names.",
        ),
        click.option(
            "--directory",
            callback=_PATH,
            metavar="PATH",
            default="/project",
            show_default=True,
            help="Directory of leftfold.toml in the image.",
        ),
        click.option(
            "--metrics-port",
            type=click.IntRange(1024, 65535),
            metavar="PORT",
            default=9464,
            show_default=True,
            help="Port of /metrics.",
        ),
    )


def _output_options(verb: F) -> F:
    return _with_options(
        verb,
        click.option(
            "--kube-namespace",
            callback=_NAME,
            metavar="NAME",
            help="Kubernetes namespace. [default: the project's name]",
        ),
        click.option(
            "--out",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help="Output directory for one file each, instead of stdout.",
        ),
        click.option("--force", is_flag=True, help="Overwrite files in DIR that differ."),
        profile_option,
        json_option,
    )


def _with_options(verb: F, *options: Callable[[F], F]) -> F:
    """Return a verb with options, which its help shows in this order."""
    for option in reversed(options):
        verb = option(verb)
    return verb


@click.group()
def render() -> None:
    """Write Kubernetes manifests of topics and jobs."""


@render.command()
@click.option(
    "--cluster", callback=_NAME, metavar="NAME", help="Name of the Kafka resource. [default: the project's name]"
)
@click.option("--topics-only", is_flag=True, help="Render only the topics, for a cluster that exists.")
@click.option(
    "--storage",
    callback=_SIZE,
    metavar="SIZE",
    default="100Gi",
    show_default=True,
    help="Disk size of each of the three nodes.",
)
@click.option(
    "--cpu", callback=_CPU, metavar="CORES", default="2", show_default=True, help="Number of cores of each node."
)
@click.option("--memory", callback=_SIZE, metavar="SIZE", default="8Gi", show_default=True, help="Memory of each node.")
@click.option(
    "--kafka-version", callback=_VERSION, metavar="VERSION", help="Version of Kafka. [default: the operator's own]"
)
@_output_options
def strimzi(
    cluster: str | None,
    topics_only: bool,
    storage: str,
    cpu: str,
    memory: str,
    kafka_version: str | None,
    kube_namespace: str | None,
    out: Path | None,
    force: bool,
    profile: str | None,
    as_json: bool,
) -> None:
    """Render Kafka and its topics for Strimzi. Also its nodes and a user. The topics are those of `apply`."""
    from leftfold.render.strimzi import StrimziOptions

    app, named = _opened(profile)
    options = StrimziOptions(
        cluster=cluster or named,
        namespace=kube_namespace or named,
        storage=storage,
        cpu=cpu,
        memory=memory,
        kafka_version=kafka_version,
        topics_only=topics_only,
    )
    _deliver("strimzi", app.render(options), out, force=force, as_json=as_json)
    if app.profile.topics == "managed" and not as_json:
        say(f'topics = "managed" in profile {app.profile.name}: apply changes them too. "checked" leaves it to Strimzi')


@render.command()
@click.option(
    "--image",
    required=True,
    callback=_IMAGE,
    metavar="IMAGE",
    help="Image of driver and executors, with Leftfold and the project in it.",
)
@click.option(
    "--group",
    "groups",
    callback=_groups,
    multiple=True,
    metavar="NAME=VIEW,VIEW",
    help="Group of views that share one application.",
)
@click.option(
    "--shared",
    callback=_PATH,
    metavar="PATH",
    default="/shared",
    show_default=True,
    help="Mount path of the volume of checkpoints.",
)
@click.option(
    "--claim",
    callback=_NAME,
    metavar="NAME",
    help="Existing claim of the volume of checkpoints. [default: one is rendered]",
)
@click.option(
    "--claim-size",
    callback=_SIZE,
    metavar="SIZE",
    default="20Gi",
    show_default=True,
    help="Size of the rendered claim.",
)
@click.option(
    "--storage-class",
    callback=_CLASS,
    metavar="NAME",
    help="Storage class of the rendered claim, with ReadWriteMany. [default: the cluster's]",
)
@click.option(
    "--executors",
    type=_COUNT,
    metavar="COUNT",
    default=2,
    show_default=True,
    help="Number of executors of each application.",
)
@click.option(
    "--executor-cores",
    type=_COUNT,
    metavar="COUNT",
    default=2,
    show_default=True,
    help="Number of cores of each executor.",
)
@click.option(
    "--executor-memory",
    callback=_HEAP,
    metavar="SIZE",
    default="4g",
    show_default=True,
    help="Heap size of each executor.",
)
@click.option(
    "--driver-memory", callback=_HEAP, metavar="SIZE", default="2g", show_default=True, help="Heap size of each driver."
)
@click.option(
    "--grace",
    type=_COUNT,
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="Time in seconds for the last batch when a driver is stopped.",
)
@_pod_options
@_output_options
def spark(
    image: str,
    groups: tuple[tuple[str, tuple[str, ...]], ...],
    secret: str | None,
    ca_secret: str | None,
    directory: str,
    shared: str,
    claim: str | None,
    claim_size: str,
    storage_class: str | None,
    executors: int,
    executor_cores: int,
    executor_memory: str,
    driver_memory: str,
    grace: int,
    metrics_port: int,
    kube_namespace: str | None,
    out: Path | None,
    force: bool,
    profile: str | None,
    as_json: bool,
) -> None:
    """Render views as Spark applications. One for each group of views, and one for the views of each other topic."""
    from leftfold.render.spark import SparkOptions

    app, named = _opened(profile)
    options = SparkOptions(
        image=image,
        namespace=kube_namespace or named,
        secret=secret or f"{named}-secrets",
        groups=groups,
        ca_secret=ca_secret,
        directory=directory,
        shared=shared,
        claim=claim,
        claim_size=claim_size,
        storage_class=storage_class,
        executors=executors,
        executor_cores=executor_cores,
        executor_memory_mi=_mebibytes(executor_memory),
        driver_memory_mi=_mebibytes(driver_memory),
        grace_s=grace,
        metrics_port=metrics_port,
    )
    _deliver("spark", app.render(options), out, force=force, as_json=as_json)


@render.command()
@click.option(
    "--image",
    required=True,
    callback=_IMAGE,
    metavar="IMAGE",
    help="Image of each pod, with Leftfold and the project in it.",
)
@click.option(
    "--replicas",
    type=Replicas(),
    multiple=True,
    help="Number of pods of a consumer, at most its partitions. [default: 2]",
)
@click.option(
    "--cpu", callback=_CPU, metavar="CORES", default="500m", show_default=True, help="Number of cores of each pod."
)
@click.option(
    "--memory", callback=_SIZE, metavar="SIZE", default="512Mi", show_default=True, help="Memory of each pod."
)
@_pod_options
@_output_options
def consumers(
    image: str,
    replicas: tuple[tuple[str, int], ...],
    secret: str | None,
    ca_secret: str | None,
    directory: str,
    cpu: str,
    memory: str,
    metrics_port: int,
    kube_namespace: str | None,
    out: Path | None,
    force: bool,
    profile: str | None,
    as_json: bool,
) -> None:
    """Render each consumer as a Deployment. Its pods are the members of its group."""
    from leftfold.render.consumers import ConsumerOptions

    app, named = _opened(profile)
    options = ConsumerOptions(
        image=image,
        namespace=kube_namespace or named,
        secret=secret or f"{named}-secrets",
        replicas=replicas,
        ca_secret=ca_secret,
        directory=directory,
        cpu=cpu,
        memory=memory,
        metrics_port=metrics_port,
    )
    _deliver("consumers", app.render(options), out, force=force, as_json=as_json)


def _opened(profile: str | None) -> tuple[App, str]:
    """The project, and its name in a form that Kubernetes accepts. The secrets of the profile are not needed."""
    from leftfold.app import App
    from leftfold.project import find_root
    from leftfold.render.names import label_name

    app = App(find_root(), profile, secrets=False)
    return app, label_name(app.name)


def _mebibytes(memory: str) -> int:
    return int(memory[:-1]) * (1_024 if memory.endswith("g") else 1)


def _deliver(kind: str, manifests: list[Manifest], out: Path | None, *, force: bool, as_json: bool) -> None:
    from leftfold.render.documents import as_yaml, write

    if force and out is None:
        raise click.UsageError("--force is for --out DIR")
    written, others = write(manifests, out, force=force) if out else ([], [])
    if as_json:
        document(f"render {kind}", manifests=manifests, files=[str(path) for path in written])
        return
    if out is None:
        click.echo(as_yaml(manifests), nl=False)
        return
    say(f"{len(written)} manifests in {out}")
    for path in others:
        say(f"  also there, and not of this render: {path}")
    next_step(f"kubectl apply -f {out}")
