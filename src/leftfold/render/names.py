"""Names that Kubernetes takes, for things whose own names it would refuse.

A name depends on the thing alone, never on its neighbours: if a new topic could rename the resource of an old one, a
`kubectl apply --prune` would delete the old topic with its records.
"""

from __future__ import annotations

import hashlib
import re

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_LONGEST_SUBDOMAIN = 253
# Kubernetes takes 63, and adds up to 11 characters of its own to the name of a StatefulSet.
_LONGEST_LABEL = 52
_DIGITS = 8  # of a hash, in hexadecimal: two of 1,000 names that need one are the same in one project of 8,000


def resource_name(real: str) -> str:
    """As a domain name: labels of small letters, digits and -, with dots between them. Different for every topic."""
    if len(real) <= _LONGEST_SUBDOMAIN and all(_LABEL.fullmatch(part) for part in real.split(".")):
        return real
    parts = [part.strip("-") for part in re.sub(r"[^a-z0-9.]+", "-", real.lower()).split(".")]
    return _with_hash(".".join(part for part in parts if part), real, _LONGEST_SUBDOMAIN)


def label_name(real: str) -> str:
    """One label, as a service needs it for its host's name. Of a_b and a-b it makes the same: whoever asks compares."""
    near = real.replace("_", "-")
    if len(near) <= _LONGEST_LABEL and _LABEL.fullmatch(near):
        return near
    return _with_hash(re.sub(r"[^a-z0-9]+", "-", real.lower()).strip("-"), real, _LONGEST_LABEL)


def _with_hash(near: str, real: str, longest: int) -> str:
    digest = hashlib.sha256(real.encode()).hexdigest()[:_DIGITS]
    return f"{near[: longest - _DIGITS - 1].rstrip('-.') or 'x'}-{digest}"
