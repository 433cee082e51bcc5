"""Keys that are parked: one of their records is a dead letter, so their later records wait with it.

A record of a parked key becomes a dead letter, too. A re-drive brings all records of the key back, in their order.
Until they have arrived, later records of the key wait here; then they follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from leftfold.consume.lanes import Work
from leftfold.kafka.dead_letters import FollowedLetters, RecordPlace

Coming = Iterable[tuple[bytes, RecordPlace]]  # keys and first places of re-driven records that were not fetched yet


class Parking:
    """The parked keys of one consumer. One thread owns it.

    `park` writes a record as a dead letter, because of its key, and returns the letter's place. At most `most` records
    wait for those that come back; more are parked.
    """

    def __init__(self, letters: FollowedLetters, park: Callable[[Work], RecordPlace], *, most: int) -> None:
        self._letters = letters
        self._park = park
        self._most = most
        self._coming: dict[bytes, set[RecordPlace]] = {}
        self._early: set[RecordPlace] = set()  # came back before it was seen that their letters are removed
        self._waiting: dict[bytes, list[Work]] = {}

    def begin(self, coming: Coming) -> None:
        """Begin anew, after a change of the assignment, with what is to come back."""
        self._letters.catch_up()
        self._letters.redriven.clear()
        self._early.clear()
        self._coming.clear()
        for key, place in coming:
            self._coming.setdefault(key, set()).add(place)

    def came_back(self, key: bytes | None, place: RecordPlace) -> list[Work]:
        """Note a re-driven record that was fetched. Returns the records that may follow it now."""
        if key is None:
            return []
        if place in self._letters.open.get(key, ()):
            self._early.add(place)
        self._arrived(key, place)
        return self._followers(key)

    def _arrived(self, key: bytes, place: RecordPlace) -> None:
        coming = self._coming.get(key, set())
        coming.discard(place)
        if not coming:
            self._coming.pop(key, None)

    def _followers(self, key: bytes) -> list[Work]:
        if key in self._coming or key in self._letters.open:
            return []
        return self._waiting.pop(key, [])

    def may_go_on(self, work: Work) -> bool:
        """Return whether a record may be handled. Else it is parked, or waits for those before it."""
        key = work.message.key()
        if key is None or (key not in self._letters.open and key not in self._coming):
            return True
        if key in self._letters.open or sum(map(len, self._waiting.values())) >= self._most:
            self.park(work)
        else:
            self._waiting.setdefault(key, []).append(work)
        return False

    def park(self, work: Work) -> None:
        """Park a record, because of its key."""
        self._letters.add(work.message.key(), self._park(work))

    def failed(self, key: bytes | None, place: RecordPlace) -> None:
        """Note a dead letter of a record that failed: its key is parked from now on."""
        if key is not None:
            self._letters.add(key, place)

    def look(self) -> list[Work]:
        """Take note of re-drives. Returns the records that waited for them, and may be handled now."""
        self._letters.look()
        while self._letters.redriven:
            key, place = self._letters.redriven.popleft()
            if place in self._early:
                self._early.discard(place)
            else:
                self._coming.setdefault(key, set()).add(place)
        free: list[Work] = []
        for key in list(self._waiting):
            if key in self._letters.open:
                for work in self._waiting.pop(key):
                    self.park(work)
            else:
                free += self._followers(key)
        return free

    def drop_lost(self) -> list[Work]:
        """Forget records of partitions that are no longer ours, and return them."""
        lost = [work for works in self._waiting.values() for work in works if not work.part.owned]
        kept = {key: [work for work in works if work.part.owned] for key, works in self._waiting.items()}
        self._waiting = {key: works for key, works in kept.items() if works}
        return lost

    def close(self) -> None:
        self._letters.close()
