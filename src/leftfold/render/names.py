"""Names that Kubernetes accepts, for things whose own names it would refuse.

A name depends only on the thing itself, never on its neighbours. If a new topic could rename the resource of an old
one, `kubectl apply --prune` would delete the old topic with its records.
"""

from __future__ import annotations

import hashlib
import re

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_LONGEST_SUBDOMAIN = 253
# Kubernetes accepts 63, and adds up to 11 characters of its own to the name of a StatefulSet.
_LONGEST_LABEL = 52
_DIGITS = 8  # hexadecimal digits of a hash: with 1,000 hashed names, one project in 8,000 has a collision


def resource_name(real: str) -> str:
    """A name in the form of a domain name: labels of small letters, digits and -, with dots between them.

    It is different for every topic.
    """
    if len(real) <= _LONGEST_SUBDOMAIN and all(_LABEL.fullmatch(part) for part in real.split(".")):
        return real
    parts = [part.strip("-") for part in re.sub(r"[^a-z0-9.]+", "-", real.lower()).split(".")]
    return _with_hash(".".join(part for part in parts if part), real, _LONGEST_SUBDOMAIN)


def label_name(real: str) -> str:
    """A name in the form of one DNS label, which a service needs for its host name.

    a_b and a-b get the same label, so a caller must check for duplicates.
    """
    near = real.replace("_", "-")
    if len(near) <= _LONGEST_LABEL and _LABEL.fullmatch(near):
        return near
    return _with_hash(re.sub(r"[^a-z0-9]+", "-", real.lower()).strip("-"), real, _LONGEST_LABEL)


def _with_hash(near: str, real: str, longest: int) -> str:
    digest = hashlib.sha256(real.encode()).hexdigest()[:_DIGITS]
    return f"{near[: longest - _DIGITS - 1].rstrip('-.') or 'x'}-{digest}"
