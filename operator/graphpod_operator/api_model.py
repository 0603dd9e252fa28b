"""What every value of the API is made of: the frozen model, CEL rules, quantities, labels."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from graphpod_operator import quantity


class ApiModel(BaseModel):
    """Base of every API value: frozen, camelCase, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


def rule(expression: str, message: str) -> dict[str, str]:
    """One CEL rule; the message is the sentence the user reads, so it names the field."""
    return {"rule": expression, "message": message}


def rules(*rules: dict[str, str]) -> dict[str, Any]:
    """CEL rules as a part of a field's schema."""
    return {"x-kubernetes-validations": list(rules)}


def _as_text(raw: object) -> object:
    return str(raw) if isinstance(raw, int) and not isinstance(raw, bool) else raw


def _is_quantity(text: str) -> str:
    quantity.value(text)
    return text


Quantity = Annotated[
    str,
    BeforeValidator(_as_text),
    AfterValidator(_is_quantity),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": quantity.PATTERN,
            "maxLength": 32,
            # the pattern holds for text only
            **rules(rule("type(self) == string || self >= 0", "must not be negative")),
        }
    ),
]

ABOVE_ZERO = rules(rule("type(self) == string ? self.matches('[1-9]') : self > 0", "must be above 0"))
"""Of a quantity that makes no sense as 0; takes the place of a quantity's own rule."""

LABEL_MAX = 317
"""Longest label key: a DNS name of 253, a slash, 63."""

Label = Annotated[str, Field(max_length=LABEL_MAX)]
LabelValue = Annotated[str, Field(max_length=63)]
