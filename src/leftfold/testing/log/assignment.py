"""Assignors: which member of a group reads which partition. Pure functions of members, partitions and who had what."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from typing import Literal

Part = tuple[str, int]  # a topic and the number of a partition
Assignment = dict[str, set[Part]]
AssignorName = Literal["range", "roundrobin", "cooperative-sticky"]


def by_range(members: Collection[str], parts: Sequence[Part], _: Mapping[str, set[Part]]) -> Assignment:
    """Give each member a stretch of each topic. The first members get one more if it does not divide."""
    ordered = sorted(members)
    assignment: Assignment = {member: set() for member in ordered}
    for _topic, group in groupby(sorted(parts), key=lambda part: part[0]):
        stretch = list(group)
        each, more = divmod(len(stretch), len(ordered))
        at = 0
        for number, member in enumerate(ordered):
            size = each + (number < more)
            assignment[member] |= set(stretch[at : at + size])
            at += size
    return assignment


def round_robin(members: Collection[str], parts: Sequence[Part], _: Mapping[str, set[Part]]) -> Assignment:
    """Deal the partitions of all topics to the members in turn."""
    ordered = sorted(members)
    assignment: Assignment = {member: set() for member in ordered}
    for number, part in enumerate(sorted(parts)):
        assignment[ordered[number % len(ordered)]].add(part)
    return assignment


def cooperative_sticky(members: Collection[str], parts: Sequence[Part], owned: Mapping[str, set[Part]]) -> Assignment:
    """Move as few partitions as a balanced assignment needs. Loads differ by one at most."""
    ordered, left = sorted(members), set(parts)
    each, more = divmod(len(left), len(ordered))
    assignment: Assignment = {member: set() for member in ordered}
    # Those that have most keep most, so a share of `each + 1` goes where it moves nothing.
    for member in sorted(ordered, key=lambda name: -len(owned.get(name, ()))):
        keeps = sorted(owned.get(member, set()) & left)[: each + (more > 0)]
        more -= len(keeps) > each
        assignment[member] = set(keeps)
        left -= assignment[member]
    for part in sorted(left):
        assignment[min(ordered, key=lambda name: (len(assignment[name]), name))].add(part)
    return assignment


ASSIGNORS: dict[AssignorName, Callable[[Collection[str], Sequence[Part], Mapping[str, set[Part]]], Assignment]] = {
    "range": by_range,
    "roundrobin": round_robin,
    "cooperative-sticky": cooperative_sticky,
}
