"""The tables of a store in Postgres, and the keys in them (docs/reference/protocol.md has each column)."""

from __future__ import annotations

import hashlib
from typing import LiteralString

from leftfold.store.engine import BuildPlace

# A row is found by the number of its build, which follows from the build's name: nobody has to look it up, and a store
# that goes back in time never gives the number of one build to another.
#
# Rows: room in each page lets a new version of a row stand beside the old one, without a new entry in the index. A
# value of some kilobytes stays in its page, uncompressed: a read is then one page of the index and one of the table.
CREATE: LiteralString = """\
create table if not exists leftfold_views (
  namespace text, view text, active text, staged text, previous text, previous_until bigint,
  primary key (namespace, view)
);
create table if not exists leftfold_builds (
  id bigint primary key, namespace text not null, view text not null, build text not null,
  known boolean not null default false, held boolean not null default false, retired boolean not null default false,
  kept_until bigint, running_until timestamptz, manifest bytea,
  batch bigint, newest bigint, redriven bigint, history text, ledger bytea,
  unique (namespace, view, build)
);
create table if not exists leftfold_calls (
  build bigint, writer text, calls bigint not null, primary key (build, writer)
);
create table if not exists leftfold_rows (
  build bigint, entity bytea, value bytea not null, expires timestamptz,
  primary key (build, entity)
) with (fillfactor = 70, toast_tuple_target = 8160);
alter table leftfold_rows alter value set storage external;
create table if not exists leftfold_vectors (
  namespace text, name text, document bytea not null, primary key (namespace, name)
);
create table if not exists leftfold_leases (
  namespace text, what text, holder text not null, until timestamptz not null, primary key (namespace, what)
)"""

# An index of Postgres takes entries of up to 2,704 bytes.
_LONGEST = 2_000
_HASHED = b"\xff"  # occurs in no text


def build_id(at: BuildPlace) -> int:
    """Return the number of a build: the first 8 bytes of a hash of its names, as a signed number."""
    names = b"\0".join(name.encode() for name in (at.namespace, at.view, at.build))
    return int.from_bytes(hashlib.sha256(names).digest()[:8], "big", signed=True)


def entity_key(entity: str) -> bytes:
    """Return the key of an entity: its text, or a hash of one that is too long for an index."""
    text = entity.encode()
    return text if len(text) <= _LONGEST else _HASHED + hashlib.sha256(text).digest()
