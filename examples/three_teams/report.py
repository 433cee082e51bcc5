"""The lag and the result of each team: `python report.py [TEAM…]` first waits until these teams have all clicks."""

import sys
import time
from pathlib import Path

from features import UserActivity

import leftfold as lf

PEOPLE = [{"user_id": f"u{number}"} for number in range(10_000)]  # as leftfold send --synthetic names them
PATIENCE_S = 120


def lines(file: str) -> list[str]:
    return Path(file).read_text().splitlines() if Path(file).exists() else []


def report() -> dict[str, tuple[int, int]]:
    """Return the lag of each team in records, and the number of clicks in its result."""
    lags = {status.group.rpartition(".")[2]: status.lag for status in app.groups("clicks")}
    rows = app.get_many(UserActivity, PEOPLE) if "user_activity" in lags else []
    results = {
        "user_activity": sum(row.clicks_24h for row in rows),
        "dashboard": sum(map(int, lines("drawn.txt"))),
        "fraud": len({line.split()[0] for line in lines("checked.txt")}),
    }
    return {team: (lags.get(team, sent), result) for team, result in results.items()}


app, deadline = lf.open(), time.monotonic() + PATIENCE_S
sent = sum(partition.end for partition in app.topics("clicks")[0].partitions)
while any(report()[team] != (0, sent) for team in sys.argv[1:]) and time.monotonic() < deadline:
    time.sleep(0.5)
for team, (lag, result) in report().items():
    print(f"{team:13}  {lag:>6,} behind  {result:>6,} of {sent:,} clicks in its result")
