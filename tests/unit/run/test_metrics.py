"""What Prometheus is told, as it goes over the wire."""

from __future__ import annotations

import socket
import urllib.request
from collections import Counter
from collections.abc import Iterator

import pytest

from leftfold import clock
from leftfold.errors import RunError
from leftfold.metrics_server import MetricsServer
from leftfold.run.metrics import view_metrics
from leftfold.run.progress import STATES, Failing, NewestBatch, Progress
from leftfold.store.layout import LedgerRow


@pytest.fixture
def views() -> list[Progress]:
    """One at work, and one that has done nothing yet."""
    progress = Progress("activity", state="running", build="b1", lag=0, rate=12.5, restarts=2)
    progress.resume([LedgerRow("payments", 0, "accepted", 100, 0, 0, 0)])
    rows = [LedgerRow("payments", 0, "accepted", 130, 0, 0, 0), LedgerRow("payments", 1, "late", 3, 0, 0, 0)]
    progress.applied(NewestBatch(7, tiles=5, newest_log=1_000_000, applied_at=3_500_000), rows)
    return [progress, Progress("other")]


@pytest.fixture
def server(views: list[Progress]) -> Iterator[MetricsServer]:
    served = MetricsServer("0", lambda: view_metrics(views))
    yield served
    served.close()


def scraped(server: MetricsServer) -> dict[str, str]:
    with urllib.request.urlopen(server.url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    assert len(lines) == len(set(lines))
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_counts_are_of_the_build_and_positions_of_the_last_batch(server: MetricsServer) -> None:
    found = scraped(server)
    assert Counter(name.partition("{")[0] for name in found if 'view="activity"' in name) == {
        "leftfold_records_total": 4,
        "leftfold_view_state": len(STATES),
        **{
            f"leftfold_{name}": 1
            for name in (
                *("batches_total", "tiles_written_total", "lag_records", "lag_seconds", "freshness_seconds"),
                *("rows_per_second", "last_batch", "last_applied_timestamp_seconds", "view_up", "restarts_total"),
                "view_failing_seconds",
            )
        },
    }
    assert found['leftfold_records_total{build="b1",outcome="accepted",view="activity"}'] == "130.0"
    assert found['leftfold_records_total{build="b1",outcome="late",view="activity"}'] == "3.0"
    assert found['leftfold_tiles_written_total{build="b1",view="activity"}'] == "5.0"
    assert found['leftfold_freshness_seconds{build="b1",view="activity"}'] == "2.5"
    assert found['leftfold_last_applied_timestamp_seconds{build="b1",view="activity"}'] == "3.5"
    assert found['leftfold_last_batch{build="b1",view="activity"}'] == "7.0"
    assert found['leftfold_view_state{state="running",view="activity"}'] == "1.0"
    assert found['leftfold_view_state{state="failed",view="activity"}'] == "0.0"
    assert found['leftfold_restarts_total{view="activity"}'] == "2.0"


def test_what_is_not_known_yet_is_left_out(server: MetricsServer) -> None:
    found = scraped(server)
    assert found['leftfold_view_up{view="other"}'] == "1.0"
    assert found['leftfold_records_total{build="",outcome="accepted",view="other"}'] == "0.0"
    assert not [name for name in found if "other" in name and ("lag" in name or "last" in name or "fresh" in name)]


def test_a_scrape_shows_the_moment(server: MetricsServer, views: list[Progress]) -> None:
    assert scraped(server)['leftfold_view_failing_seconds{view="activity"}'] == "0.0"
    views[0].failing = Failing(tries=3, since=clock.now_us() / 1e6 - 100, due=0.0)
    assert float(scraped(server)['leftfold_view_failing_seconds{view="activity"}']) >= 100
    views[0].state = "failed"
    found = scraped(server)
    assert found['leftfold_view_failing_seconds{view="activity"}'] == "0.0"
    assert found['leftfold_view_up{view="activity"}'] == "0.0"
    assert found['leftfold_view_state{state="failed",view="activity"}'] == "1.0"


def test_labels_are_escaped(server: MetricsServer, views: list[Progress]) -> None:
    views[1].view, views[1].state = 'a"b\\c\nd', "waiting"
    found = scraped(server)
    assert found[r'leftfold_view_up{view="a\"b\\c\nd"}'] == "1.0"
    assert found[r'leftfold_view_state{state="waiting",view="a\"b\\c\nd"}'] == "1.0"


def test_it_listens_on_loopback_and_ends(views: list[Progress]) -> None:
    server = MetricsServer("0", lambda: view_metrics(views))
    assert server.url.startswith("http://127.0.0.1:")
    server.close()
    with pytest.raises(OSError, match="refused"):
        scraped(server)


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(RunError) as error:
        MetricsServer(f"127.0.0.1:{taken.getsockname()[1]}", list)
    assert error.value.code == "metrics-port"
    assert "in use" in error.value.why


def test_a_port_that_does_not_exist() -> None:
    with pytest.raises(RunError) as error:
        MetricsServer("70000", list)
    assert error.value.code == "metrics-port"
