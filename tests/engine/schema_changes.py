"""Avro schemas of several shapes, and changes of every kind to them, generated from a seed."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

from leftfold.declare.topic_options import COMPATIBILITIES

Schema = dict[str, Any]
_MICROS = {"type": "long", "logicalType": "timestamp-micros"}
_MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
_SCALARS: list[Any] = ["int", "long", "float", "double", "string", "bytes", "boolean", _MICROS]
_DEFAULTS: dict[str, Any] = {
    "int": 1,
    "long": 2,
    "float": 0.5,
    "double": 1.5,
    "string": "x",
    "bytes": "y",
    "boolean": True,
}

_LEVELS = [level for level in COMPATIBILITIES for _ in range(1 if level == "NONE" else 3)]  # NONE accepts anything

BASES: tuple[Schema, ...] = (
    {
        "type": "record",
        "name": "Click",
        "fields": [
            {"name": "user_id", "type": "string"},
            {"name": "price", "type": "double"},
            {"name": "pieces", "type": "long", "default": 1},
            {"name": "coupon", "type": ["null", "string"], "default": None},
            {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
            {"name": "at", "type": _MICROS},
        ],
    },
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop.orders",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID", "SENT"]}},
            {"name": "before", "type": ["null", "State"], "default": None},
            {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 16}},
            {
                "name": "lines",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Line",
                        "fields": [{"name": "sku", "type": "string"}, {"name": "pieces", "type": "int", "default": 1}],
                    },
                },
            },
            {"name": "totals", "type": {"type": "map", "values": "float"}},
        ],
    },
    {
        "type": "record",
        "name": "Tree",
        "fields": [
            {"name": "value", "type": ["int", "string"]},
            {"name": "left", "type": ["null", "Tree"], "default": None},
            {"name": "rest", "type": {"type": "array", "items": "Tree"}},
        ],
    },
    {
        "type": "record",
        "name": "Reading",
        "namespace": "plant",
        "aliases": ["Measure"],
        "fields": [
            {"name": "sensor", "type": "long", "aliases": ["device"]},
            {"name": "level", "type": ["float", "null"], "default": 0.0},
            {"name": "unit", "type": {"type": "enum", "name": "Unit", "symbols": ["C", "F"], "default": "C"}},
            {"name": "raw", "type": "bytes"},
        ],
    },
)


# Changes, one kind each; they return whether there was something to change ------------------------------------------


def add_required(schema: Schema, chance: random.Random) -> bool:
    schema["fields"].insert(chance.randrange(3), {"name": _name(chance), "type": chance.choice(_SCALARS)})
    return True


def add_with_default(schema: Schema, chance: random.Random) -> bool:
    kind = chance.choice(list(_DEFAULTS))
    schema["fields"].append({"name": _name(chance), "type": kind, "default": _DEFAULTS[kind]})
    return True


def add_optional(schema: Schema, chance: random.Random) -> bool:
    schema["fields"].append({"name": _name(chance), "type": ["null", chance.choice(_SCALARS)], "default": None})
    return True


def remove(schema: Schema, chance: random.Random) -> bool:
    if len(schema["fields"]) < 2:
        return False
    field = chance.choice(schema["fields"])
    if isinstance(field["type"], dict) and "name" in field["type"]:  # other fields may refer to its type
        return False
    schema["fields"].remove(field)
    return True


def rename(schema: Schema, chance: random.Random) -> bool:
    field = chance.choice(schema["fields"])
    field["name"] = _name(chance)
    return True


def rename_with_alias(schema: Schema, chance: random.Random) -> bool:
    field = chance.choice(schema["fields"])
    field["aliases"] = [*field.get("aliases", []), field["name"]]
    field["name"] = _name(chance)
    return True


def alias_of_another(schema: Schema, chance: random.Random) -> bool:
    first, second = chance.sample(schema["fields"], 2)
    first["aliases"] = [second["name"]]
    return True


def retype(schema: Schema, chance: random.Random) -> bool:
    field = _field(schema, chance, lambda kind: _is_scalar(kind) or kind == _MICROS)
    if field is None:
        return False
    field["type"] = chance.choice(_SCALARS)
    field.pop("default", None)
    return True


def relabel_time(schema: Schema, chance: random.Random) -> bool:
    field = _field(schema, chance, lambda kind: kind == _MICROS)
    if field is None:
        return False
    field["type"] = chance.choice([_MILLIS, "long"])
    return True


def make_optional(schema: Schema, chance: random.Random) -> bool:
    field = _field(schema, chance, _is_scalar)
    if field is None:
        return False
    has = "default" in field
    field["type"] = [field["type"], "null"] if has else ["null", field["type"]]
    return True


def make_required(schema: Schema, chance: random.Random) -> bool:
    field = _field(schema, chance, lambda kind: isinstance(kind, list) and len(kind) > 1 and "null" in kind)
    if field is None:
        return False
    field["type"] = next(kind for kind in field["type"] if kind != "null")
    field.pop("default", None)
    return True


def change_branches(schema: Schema, chance: random.Random) -> bool:
    field = _field(schema, chance, lambda kind: isinstance(kind, list) and len(kind) == 2)
    if field is None:
        return False
    how = chance.choice(["more", "fewer", "turned"])
    first, second = field["type"]
    if how == "more":
        field["type"] = [first, second, "boolean"]
    elif how == "fewer":
        field["type"] = [first]
    else:
        field["type"] = [second, first]
        field.pop("default", None)
    return True


def drop_default(schema: Schema, chance: random.Random) -> bool:
    field = _any(schema, chance, lambda field: "default" in field)
    if field is None:
        return False
    del field["default"]
    return True


def change_default(schema: Schema, chance: random.Random) -> bool:
    field = _any(schema, chance, lambda field: type(field.get("default")) in (int, float))
    if field is None:
        return False
    field["default"] += 1
    return True


def reorder(schema: Schema, chance: random.Random) -> bool:
    named = any(isinstance(f["type"], dict) and "name" in f["type"] for f in schema["fields"])
    if named:  # a named type must be defined where it first occurs
        return False
    chance.shuffle(schema["fields"])
    return True


def document(schema: Schema, chance: random.Random) -> bool:
    schema["doc"] = _name(chance)
    return True


def rename_record(schema: Schema, chance: random.Random) -> bool:
    if schema["name"] == "Tree":  # it refers to itself by name
        return False
    if chance.random() < 0.5:
        schema["aliases"] = [*schema.get("aliases", []), schema["name"]]
    schema["name"] = chance.choice(["Renamed", "Measure"])
    return True


def move_record(schema: Schema, chance: random.Random) -> bool:
    schema["namespace"] = _name(chance)
    return True


def change_symbols(schema: Schema, chance: random.Random) -> bool:
    enum = _named(schema, "enum", chance)
    if enum is None:
        return False
    how = chance.choice(["more", "fewer", "default", "name"])
    if how == "more":
        enum["symbols"] = [*enum["symbols"], "MORE"]
    elif how == "fewer":
        enum["symbols"] = enum["symbols"][:-1]
    elif how == "default":
        enum["symbols"], enum["default"] = enum["symbols"][:-1], enum["symbols"][0]
    elif enum["name"] == "Unit":  # no other field refers to it
        enum["name"] = "Scale"
    else:
        return False
    return True


def change_fixed(schema: Schema, chance: random.Random) -> bool:
    fixed = _named(schema, "fixed", chance)
    if fixed is None:
        return False
    if chance.random() < 0.5:
        fixed["size"] += 1
    else:
        fixed["aliases"], fixed["name"] = ([fixed["name"]] if chance.random() < 0.5 else []), "Hash"
    return True


def change_inside(schema: Schema, chance: random.Random) -> bool:
    field = _field(schema, chance, lambda kind: isinstance(kind, dict) and kind["type"] in ("array", "map"))
    if field is None:
        return False
    inside = field["type"].get("items") or field["type"].get("values")
    if isinstance(inside, dict) and inside.get("fields"):
        return chance.choice([add_required, add_with_default, remove, retype, rename, drop_default])(inside, chance)
    if chance.random() < 0.5:
        kind, key = chance.choice([("array", "items"), ("map", "values")])
        field["type"] = {"type": kind, key: inside}
        field.pop("default", None)
    else:
        key = "items" if field["type"]["type"] == "array" else "values"
        field["type"] = {"type": field["type"]["type"], key: chance.choice(_SCALARS)}
    return True


CHANGES: tuple[Callable[[Schema, random.Random], bool], ...] = (
    *(add_required, add_with_default, add_optional, remove, rename, rename_with_alias, alias_of_another, retype),
    *(relabel_time, make_optional, make_required, change_branches, drop_default, change_default, reorder, document),
    *(rename_record, move_record, change_symbols, change_fixed, change_inside),
)


def _name(chance: random.Random) -> str:
    return "f" + "".join(chance.choice("abcdefgh") for _ in range(6))


def _any(schema: Schema, chance: random.Random, wanted: Callable[[Any], bool]) -> Any:
    found = [field for field in schema["fields"] if wanted(field)]
    return chance.choice(found) if found else None


def _field(schema: Schema, chance: random.Random, wanted: Callable[[Any], bool]) -> Any:
    return _any(schema, chance, lambda field: wanted(field["type"]))


def _is_scalar(kind: Any) -> bool:
    return isinstance(kind, str) and kind in _DEFAULTS


def _named(schema: Schema, kind: str, chance: random.Random) -> Any:
    found = [f["type"] for f in schema["fields"] if isinstance(f["type"], dict) and f["type"]["type"] == kind]
    return chance.choice(found) if found else None


def changed(schema: Schema, change: Callable[[Schema, random.Random], bool], chance: random.Random) -> Schema | None:
    after = copy.deepcopy(schema)
    return after if change(after, chance) and after != schema else None


def cases(count: int, seed: int) -> list[tuple[str, list[str], str, str]]:
    """Generate cases: kind of change, versions before it, new schema, and the compatibility level that judges it."""
    chance = random.Random(seed)
    made: list[tuple[str, list[str], str, str]] = []
    while len(made) < count:
        versions = [chance.choice(BASES)]
        for _ in range(chance.choice([0, 0, 1, 2])):
            earlier = changed(versions[-1], chance.choice(CHANGES), chance)
            versions += [earlier] if earlier is not None else []
        change = CHANGES[len(made) % len(CHANGES)]
        after = changed(versions[-1], change, chance)
        if after is None:
            versions = [chance.choice(BASES)]
            after = changed(versions[-1], change, chance)
        if after is None or any(a == b for i, a in enumerate([*versions, after]) for b in versions[:i]):
            continue
        level = chance.choice(_LEVELS)
        made.append((change.__name__, [json.dumps(v) for v in versions], json.dumps(after), level))
    return made
