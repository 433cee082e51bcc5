"""Runs a consumer in a process that dies at a chosen step: `python -m tests.engine.dying_consumer ROOT STEP COUNT`.

Without a step it runs until it is ended. It dies by `os._exit`, as by SIGKILL: nothing is flushed, closed or committed.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

import leftfold
from leftfold.cli.progress import end_on_signal
from leftfold.consume.consuming import Consuming
from leftfold.consume.sql_rows import SqlRows
from leftfold.infer.scoring import Scoring
from leftfold.kafka import transactions
from leftfold.kafka.dead_letters import DeadLetterWriter
from leftfold.kafka.group import Member
from leftfold.kafka.log_writer import Sending

ALL = ("at_most_once", "at_least_once", "exactly_once", "exactly_once_sql")
OF_KAFKA = ALL[:3]
# The steps at which it may die, and the deliveries that have them.
STEPS = {
    "polled": ALL,
    "position locked": ("exactly_once_sql",),
    "position committed": ("at_most_once",),
    "handler half done": ALL,
    "handler done": ALL,
    "settled": ALL,
    "dead letter acknowledged": ("at_most_once", "at_least_once", "exactly_once_sql"),
    "records written": ("exactly_once",),
    "position moved": ("exactly_once_sql",),
    "commit due": OF_KAFKA,  # exactly once: the positions are in the transaction
    "commit sent": ALL,  # into a database: to the database
    "committed": ALL,
}
# The same for a scorer of a stream.
SCORING_STEPS = {
    "at_least_once": ("polled", "scored", "predictions acknowledged", "settled", "commit sent", "committed"),
    "exactly_once": ("polled", "scored", "settled", "records written", "commit due", "commit sent"),
}
OF_ROWS = {"position locked": "lock", "position moved": "move_with", "committed": "commit"}  # methods of SqlRows
AFTER: dict[str, tuple[Any, str]] = {  # methods of others
    "committed": (Consuming, "committed"),
    "scored": (Scoring, "score"),
    "predictions acknowledged": (Sending, "wait"),
}
DIED = 86


def dies(count: int) -> Callable[[], None]:
    left = [count]

    def die() -> None:
        left[0] -= 1
        if left[0] <= 0:
            os._exit(DIED)

    return die


def dying_client(step: str, die: Callable[[], None]) -> type[Producer]:
    """Return a client whose process dies in the middle of a transaction."""

    class DyingClient(Producer):
        def send_offsets_to_transaction(self, *args: Any) -> None:
            if step == "records written":
                self.flush(10)
                die()
            super().send_offsets_to_transaction(*args)
            if step == "commit due":
                die()

        def commit_transaction(self, *args: Any) -> None:
            if step == "commit sent":
                threading.Thread(target=super().commit_transaction, args=args, daemon=True).start()
                time.sleep(0.003)  # it is on its way, and its answer is not there yet, or just so
                die()
                time.sleep(0.2)
            else:
                super().commit_transaction(*args)

    return DyingClient


def dying_commit(die: Callable[[], None]) -> Callable[[SqlRows, Any], None]:
    """Return a commit of the database during which the process dies."""
    commit = SqlRows.commit

    def sent(rows: SqlRows, connection: Any) -> None:
        threading.Thread(target=commit, args=(rows, connection), daemon=True).start()
        time.sleep(random.uniform(0, 0.002))  # it is on its way, and its answer is not there yet, or just so
        die()
        time.sleep(0.2)

    return sent


def arrange(step: str, delivery: str, die: Callable[[], None]) -> None:
    """Let the process die after this step."""

    def after(owner: Any, name: str, when: Callable[[Any, Any], bool] = lambda *_: True) -> None:
        """Let it die after a method, if that holds of the object and what the method returned."""
        method = getattr(owner, name)

        def wrapped(one: Any, *args: Any, **options: Any) -> Any:
            result = method(one, *args, **options)
            if when(one, result):
                die()
            return result

        setattr(owner, name, wrapped)

    def before(owner: Any, name: str) -> None:
        method = getattr(owner, name)

        def wrapped(*args: Any, **options: Any) -> Any:
            die()
            return method(*args, **options)

        setattr(owner, name, wrapped)

    if delivery == "exactly_once" and step in ("records written", "commit due", "commit sent"):
        setattr(transactions, "Client", dying_client(step, die))  # noqa: B010 # it is not exported, and is replaced here
        return
    if delivery == "exactly_once_sql" and step == "commit sent":
        setattr(SqlRows, "commit", dying_commit(die))  # noqa: B010 # it is replaced here
        return
    if delivery == "exactly_once_sql" and step in OF_ROWS:
        after(SqlRows, OF_ROWS[step])
        return
    if step in AFTER:
        after(*AFTER[step])
        return
    match step:
        case "polled":
            after(Member, "poll", lambda _, messages: any(m.error() is None for m in messages))
        case "position committed":
            after(Member, "commit", lambda _, took_effect: took_effect)
        case "handler half done" | "handler done":
            pass  # the handler itself asks
        case "settled":
            after(Consuming, "_collect", lambda one, _: one._commits.uncommitted > 0)
        case "dead letter acknowledged":
            after(DeadLetterWriter, "look", lambda one, _: bool(one.acknowledged))
        case "commit due":
            before(Member, "commit_soon")
        case "commit sent":
            after(Member, "commit_soon", lambda _, sent: sent)


def main() -> None:
    root, step, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    app = leftfold.open(root)
    consumer = app.catalog.consumer(sys.argv[4])
    handler = consumer.function.__globals__
    if sys.argv[4] in app.catalog.scorers:
        handler = {}  # its steps are those of Leftfold's own function
    if step:
        die = dies(count)
        arrange(step, consumer.delivery if consumer.into is None else "exactly_once_sql", die)
        handler["at_step"] = lambda name: die() if name == step else None
    crew = app.crew(sys.argv[4])
    end_on_signal(crew.stop)
    (ended,) = crew.run()
    if ended.error is not None:
        print(ended.error, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
