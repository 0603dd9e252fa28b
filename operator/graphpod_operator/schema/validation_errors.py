"""What is wrong with a value of the API, in sentences: the field, what it must be, and what was found. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, NamedTuple

from pydantic import ValidationError

from graphpod_operator.api.names import SHORT_NAME
from graphpod_operator.api.spec import Spec
from graphpod_operator.schema.openapi import Schema, structural

SHOWN = 80
"""Characters of a value in a message."""

Place = tuple[str | int, ...]


class Mistake(NamedTuple):
    """One mistake: where, below the value that was judged, and the sentence about it."""

    place: Place
    what: str


def mistakes(error: ValidationError) -> tuple[Mistake, ...]:
    """All of a spec, in the order of the fields."""
    return tuple(Mistake(one["loc"], _sentence(one)) for one in error.errors(include_url=False) if not _follows(one))


def field_path(place: Iterable[str | int]) -> str:
    """As the API server writes a path: spec.graph.sizes.decode[0]."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def shown(value: object) -> str:
    """A value in a message: as JSON, cut."""
    text = json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace").decode()
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


_MESSAGES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "int_type": lambda _: "expected a whole number",
    "bool_type": lambda _: "expected true or false",
    "string_type": lambda _: "expected text",
    "float_type": lambda _: "expected a number",
    "tuple_type": lambda _: "expected a list",
    "dict_type": lambda _: "expected an object",
    "model_type": lambda _: "expected an object",
    "greater_than_equal": lambda limits: f"must be at least {limits['ge']}",
    "less_than_equal": lambda limits: f"must be at most {limits['le']}",
    "enum": lambda limits: "must be one of " + limits["expected"].replace(" or ", ", ").replace("'", ""),
    "string_too_short": lambda limits: f"must have at least {_count(limits['min_length'], 'character')}",
    "string_too_long": lambda limits: f"must have at most {_count(limits['max_length'], 'character')}",
    "too_short": lambda limits: f"must have at least {_count(limits['min_length'], 'item')}",
    "too_long": lambda limits: f"must have at most {_count(limits['max_length'], 'item')}",
    "string_pattern_mismatch": lambda limits: f"must match {limits['pattern']}",
}
"""By pydantic's type of a mistake: what the value must be."""


def _follows(one: Any) -> bool:
    """Whether it only follows from mistakes inside: a list whose items are all wrong counts as empty."""
    return one["type"] == "too_short" and bool(len(one["input"]) >= one["ctx"]["min_length"])


def _sentence(one: Any) -> str:
    kind, value = one["type"], one["input"]
    if kind == "extra_forbidden":
        return f"no such field; {_instead(one['loc'])}"
    if kind == "missing":
        return "required"
    if kind in _MESSAGES:
        return f"{_MESSAGES[kind](one.get('ctx', {}))}, found {shown(value)}"
    message: str = one["msg"].removeprefix("Value error, ")
    # A rule about several fields names them, and a text of its own may have the value already.
    scalars = value if isinstance(value, list | tuple) else [value]
    plain = not any(isinstance(each, Mapping | list | tuple) for each in scalars)
    return f"{message}, found {shown(value)}" if plain and shown(value).strip('"') not in message else message


def _instead(place: Place) -> str:
    """What may have been meant by a field that does not exist."""
    *parents, name = place
    node: Schema = _schema()
    for part in parents:
        node = node.get("items", {}) if isinstance(part, int) else node.get("properties", {}).get(part, {})
    near = get_close_matches(str(name), node.get("properties", {}), 1)
    if near:
        return f"did you mean {near[0]}?"
    above = "".join(f".{part}" for part in parents if isinstance(part, str))
    return f"for its fields: kubectl explain {SHORT_NAME}.spec{above}"


@cache
def _schema() -> Schema:
    return structural(Spec)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
