"""What every value of the API is made of: the frozen model, rules in CEL and Python, keyed lists, quantities, labels.

The API server judges a spec by the schema, the operator and `explain` by these models, and both must come to the same
answer. So each rule stands in one place as CEL and as a predicate, and numbers and booleans are taken as strictly as
the server takes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic_core import CoreSchema, core_schema

from graphpod_operator.api import duration, quantity

CEL = "x-kubernetes-validations"
LIST_TYPE = "x-kubernetes-list-type"
LIST_KEYS = "x-kubernetes-list-map-keys"
PRESERVE = "x-kubernetes-preserve-unknown-fields"


@dataclass(frozen=True, slots=True)
class ValidationRule:
    """One rule, twice: `cel` for the API server, `holds` for everybody without one.

    `message` is the sentence the user reads. The server puts the field's path before it.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool]

    def schema(self) -> dict[str, str]:
        """The rule as the server reads it."""
        return {"rule": self.cel, "message": self.message}

    def check(self, value: object) -> None:
        """Raises ValueError with the message when the rule does not hold."""
        if not self.holds(value):
            raise ValueError(self.message)


@dataclass(frozen=True, slots=True)
class Transition:
    """One rule about a change, which only the API server sees: it knows the value before (`oldSelf`)."""

    cel: str
    message: str

    def schema(self) -> dict[str, str]:
        """The rule as the server reads it."""
        return {"rule": self.cel, "message": self.message}


def unchanging(field: str, message: str) -> Transition:
    """Of an optional field that cannot be set later, changed or removed. It stands on the parent: a transition rule
    on an optional field does not fire when the field comes or goes.
    """
    here, before = f"self.{field}", f"oldSelf.{field}"
    return Transition(f"has({here}) == has({before}) && (!has({here}) || {here} == {before})", message)


def _with_rules(schema: dict[str, Any], rules: tuple[ValidationRule | Transition, ...]) -> dict[str, Any]:
    return {**schema, CEL: [*schema.get(CEL, ()), *(rule.schema() for rule in rules)]} if rules else schema


class Ruled:
    """Rules of an annotated value: `Annotated[str, Ruled(…)]`."""

    def __init__(self, *rules: ValidationRule) -> None:
        self._rules = rules

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return _with_rules(handler(schema), self._rules)

    def _check(self, value: Any) -> Any:
        for rule in self._rules:
            rule.check(value)
        return value


class Keyed:
    """An annotated list whose items have one of their fields, named as in Python, as key."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), LIST_TYPE: "map", LIST_KEYS: [to_camel(self._key)]}

    def _check(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        keys = [getattr(item, self._key) for item in items]
        for key in keys:
            if keys.count(key) > 1:
                raise ValueError(f"two items with {to_camel(self._key)} {key!r}")
        return items


ATOMIC: JsonDict = {LIST_TYPE: "atomic"}
"""Of a list that one writer owns as a whole."""


def _without_nulls(raw: object) -> object:
    return {key: value for key, value in raw.items() if value is not None} if isinstance(raw, Mapping) else raw


PRUNED = BeforeValidator(_without_nulls)
"""Of an annotated map: the server takes out what is null before it judges."""


class ApiModel(BaseModel):
    """Base of every API value: frozen, camelCase, unknown fields refused, the class's own rules checked."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel)

    RULES: ClassVar[tuple[ValidationRule, ...]] = ()
    """Rules about several fields of the value."""
    TRANSITIONS: ClassVar[tuple[Transition, ...]] = ()
    """Rules about its changes."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        made = handler(schema)
        handler.resolve_ref_schema(made).update(_with_rules({}, (*cls.RULES, *cls.TRANSITIONS)))
        return made

    @model_validator(mode="before")
    @classmethod
    def _is_pruned(cls, raw: object) -> object:
        """The server takes out fields that are null before it judges, but no unknown ones."""
        if not isinstance(raw, Mapping):
            return raw
        if None not in raw.values():
            return raw  # which most are: every status has dozens of values
        known = {field.alias for field in cls.model_fields.values()}
        return {key: value for key, value in raw.items() if value is not None or key not in known}

    @model_validator(mode="after")
    def _obeys_its_rules(self) -> Self:
        if broken := [rule.message for rule in self.RULES if not rule.holds(self)]:
            raise ValueError("; ".join(broken))
        return self


def one_of(names: Iterable[str]) -> str:
    """A list of CEL."""
    return "[" + ", ".join(f"'{name}'" for name in names) + "]"


def matches(pattern: str) -> Callable[[str], bool]:
    """A predicate for CEL's `matches`; `$` is the end of the text in both (Python's own also precedes a newline)."""
    found = re.compile(pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern)
    return lambda text: found.search(text) is not None


Integer = Annotated[int, Strict()]
Boolean = Annotated[bool, Strict()]


def _as_text(raw: object) -> object:
    return str(raw) if isinstance(raw, int) and not isinstance(raw, bool) else raw


def _is_quantity(text: str) -> str:
    quantity.value(text)
    return text


Duration = Annotated[str, Field(max_length=16, pattern=duration.PATTERN)]
"""One number and one unit: 200ms, 90s, 5m."""


def lasting(least: str, most: str) -> Ruled:
    """A rule that a Duration lies between two others."""
    return Ruled(
        ValidationRule(
            f"duration(self) >= duration('{least}') && duration(self) <= duration('{most}')",
            f"must be from {least} to {most}",
            lambda text: duration.seconds(least) <= duration.seconds(text) <= duration.seconds(most),
        )
    )


PositiveDuration = Annotated[
    Duration,
    Ruled(ValidationRule("self.matches('[1-9]')", "must be above 0", lambda text: duration.seconds(text) > 0)),
]
"""Of a duration that makes no sense as 0."""

_QUANTITY = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
    # of text
    "pattern": quantity.PATTERN,
    "maxLength": 32,
    # of numbers
    "minimum": 0,
    "maximum": 10**15 - 1,
}

Quantity = Annotated[str, BeforeValidator(_as_text), AfterValidator(_is_quantity), WithJsonSchema(_QUANTITY)]
"""As in a container: `500m`, `2Gi`, 4. Kept as text."""

PositiveQuantity = Annotated[
    Quantity,
    Ruled(
        ValidationRule(
            "quantity(string(self)).isGreaterThan(quantity('0'))",
            "must be above 0",
            lambda text: quantity.value(text) > 0,
        )
    ),
]
"""Of a quantity that makes no sense as 0."""

LEAST_BYTES, MOST_BYTES = "1Mi", "64Ti"
"""Of memory: 500m, half a byte, and 1P, a thousand machines of it, are slips."""


def bytes_cel(name: str, least: str = LEAST_BYTES, most: str = MOST_BYTES) -> str:
    """CEL: whether a quantity is a number of bytes between the bounds."""
    number = f"quantity(string({name}))"
    return f"{number}.compareTo(quantity('{least}')) >= 0 && {number}.compareTo(quantity('{most}')) <= 0"


def is_bytes(text: str, least: str = LEAST_BYTES, most: str = MOST_BYTES) -> bool:
    """The same of a quantity as text."""
    return quantity.value(least) <= quantity.value(text) <= quantity.value(most)


def sized(least: str, most: str) -> Ruled:
    """A rule that a Quantity is a number of bytes between two others."""
    return Ruled(
        ValidationRule(
            bytes_cel("self", least, most),
            f"must be from {least} to {most} (bytes; m is a thousandth)",
            lambda text: is_bytes(text, least, most),
        )
    )


Bytes = Annotated[Quantity, sized(LEAST_BYTES, MOST_BYTES)]
"""Memory or storage."""

SOURCES = 8
"""Fields of a part of a pod that the API passes through; Kubernetes' own have at most 5."""

Passthrough = Annotated[
    dict[str, Any],
    Field(max_length=SOURCES),
    WithJsonSchema({"type": "object", "maxProperties": SOURCES, PRESERVE: True}),
]
"""A part of a pod, as Kubernetes has it: typing it here would make the CRD several times as large. How deep it is, and
how much is in it, a schema cannot bound then: `kube.bounds` does on reading.
"""

ObjectName = Annotated[str, Field(min_length=1, max_length=253)]
"""Name of another object. Whether there is one, and how names of its kind are made, is the server's to say."""

LABEL_MAX = 317
"""Longest label key: a DNS name of 253, a slash, 63."""

Label = Annotated[str, Field(max_length=LABEL_MAX)]
LabelValue = Annotated[str, Field(max_length=63, pattern=r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")]

LABEL_KEY = r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"

KEY_LENGTH = ValidationRule(
    f"self.all(key, size(key) <= {LABEL_MAX})",
    f"keys must have at most {LABEL_MAX} characters",
    lambda keyed: all(len(key) <= LABEL_MAX for key in keyed),
)
"""A schema cannot bound the keys of a map."""
