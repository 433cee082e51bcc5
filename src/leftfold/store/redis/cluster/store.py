"""A Redis Cluster as a store: what the single Redis does, with a mark for each bucket.

A bucket's mark says that all rows of the bucket up to its batch are there. It is moved as the mark of a single Redis
is. The mark of the build, which has the ledger too, is moved after those of all buckets. So a process that dies in
between leaves some buckets one batch further than the mark of the build, and the batch is written again.

A server that takes over without the last writes has marks that are behind: those of its buckets, and only they are to
be repaired.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from leftfold.store.engine import BuildPlace, Calls, EndOfScan, Move, Moved, MoveMark, StorePosition
from leftfold.store.layout import REDRIVEN
from leftfold.store.redis.cluster.buckets import BUCKETS, control_tag, tags
from leftfold.store.redis.cluster.nodes import WRITERS_PATIENCE_S, Nodes
from leftfold.store.redis.link import command, evaluated_by
from leftfold.store.redis.names import names_of
from leftfold.store.redis.scripts import BEGIN_BATCH
from leftfold.store.redis.store import SCANNED_AT_ONCE, RedisStore, chunks, escaped, moving


class ClusterStore(RedisStore):
    def __init__(self, url: str) -> None:
        self._link = Nodes(url, WRITERS_PATIENCE_S)

    def claim(self, at: BuildPlace, batch: int | None) -> StorePosition:
        sha, wanted = self._link.load(BEGIN_BATCH), "" if batch is None else batch
        marks = (*map(self._bucket(at), range(BUCKETS)), self._marked(at))
        return _position(self._link.run([evaluated_by(sha, keys, wanted) for keys in marks]))

    def move(self, at: BuildPlace, to: Move, calls: Sequence[Calls]) -> Moved:
        repaired = isinstance(to, MoveMark) and to.repaired
        some = to.buckets if isinstance(to, MoveMark) else None
        buckets = range(BUCKETS) if some is None else sorted(some)
        counted: dict[int, list[Calls]] = defaultdict(list)
        for one in calls:
            counted[one.bucket].append(one)
        keys, commands = self._bucket(at), []
        for bucket in buckets:
            script, arguments = moving(to, counted[bucket], entries=False)
            commands.append(evaluated_by(self._link.load(script), keys(bucket), *arguments))
        expected = 0 if isinstance(to, EndOfScan) else to.batch
        for batch, missing in self._link.run(commands):
            if missing or int(batch) != expected:
                return Moved(int(batch), missing.decode())
        moved = super().move(at, to, ())
        # The batch after the repaired one may be there already: its process died before it was committed.
        return Moved(expected, "") if repaired and moved == Moved(expected + 1, "") else moved

    def position(self, at: BuildPlace) -> StorePosition:
        marks = (*map(self._bucket(at), range(BUCKETS)), self._marked(at))
        return _position(self._link.run([command("HMGET", mark, "batch", REDRIVEN) for mark, _ in marks]))

    def retire(self, at: BuildPlace, now: int) -> str:
        role = super().retire(at, now)
        if not role:
            keys = self._bucket(at)
            self._link.run([command("DEL", *keys(bucket)) for bucket in range(BUCKETS)])
        return role

    def erase(self, at: BuildPlace) -> None:
        self._unlink(f"{at.namespace}:row:{at.view}:{at.build}:")

    def remove_namespace(self, namespace: str) -> None:
        assert namespace, "without a namespace this would be everything"
        self._unlink(f"{namespace}:")

    def _unlink(self, beginning: str) -> None:
        """Remove all keys that begin so after their tag. A key that moves to another server may be missed once."""
        pattern, wanted, found = f"lf:{{*}}:{escaped(beginning)}*", beginning.encode(), True
        while found:
            found = False
            with self._link.reaching():
                for server in self._link.servers():
                    keys = (key for key in server.scan_iter(match=pattern, count=SCANNED_AT_ONCE))
                    for some in chunks(key for key in keys if key.partition(b"}:")[2].startswith(wanted)):
                        found = True
                        self._link.run([command("UNLINK", key.decode()) for key in some])

    def _tag(self, namespace: str) -> str:
        return control_tag(namespace)

    def _bucket(self, at: BuildPlace) -> Marked:
        """Return what gives the mark and the counted calls of a bucket."""

        def marked(bucket: int) -> tuple[str, str]:
            names = names_of(at, tags()[bucket])
            return names.mark(at.build), names.calls(at.build)

        return marked


Marked = Callable[[int], tuple[str, str]]


def _position(marks: Sequence[Sequence[bytes | int | None]]) -> StorePosition:
    """Return the position that the marks of all buckets and that of the build make together."""
    batches = [-1 if batch is None else int(batch) for batch, _ in marks]
    redriven = min(int(until or 0) for _, until in marks)
    return StorePosition(min(batches), redriven, tuple(batches[:-1]))
