"""Pydantic models to structural OpenAPI v3 schemas, as a CustomResourceDefinition wants them.

Structural means: every `$ref` inlined, `null` branches dropped (an optional field is one that is not required),
no titles, no `additionalProperties: false` next to properties. Scalar defaults are kept, so the API server fills
them; the default of an object is `{}`, from which the server fills its fields one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

_DROPPED = frozenset({"title", "$defs", "default", "description", "anyOf", "$ref", "const", "additionalProperties"})


_FIRST = ("type", "enum", "minLength", "maxLength", "pattern", "minimum", "maximum", "minItems", "maxItems")


def _place(key: str) -> tuple[int, str]:
    """Sort key: what a value must be, in reading order, then the rest."""
    return (_FIRST.index(key) if key in _FIRST else len(_FIRST), key)


def structural(model: type[BaseModel]) -> Schema:
    """The structural schema of a model, by its wire names."""
    raw = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(raw, raw.get("$defs", {}))


def _convert(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    described = {key: node[key] for key in ("description", "default") if node.get(key) is not None}
    if isinstance(described.get("default"), list):
        del described["default"]  # an empty list: absent says the same
    elif isinstance(described.get("default"), Mapping):
        described["default"] = {}
    if "$ref" in node:
        target = definitions[node["$ref"].removeprefix("#/$defs/")]
        siblings = {key: value for key, value in node.items() if key not in _DROPPED}
        return _convert({**target, **siblings, **described}, definitions)
    if "anyOf" in node and not node.get("x-kubernetes-int-or-string"):
        branch = _only_branch(node["anyOf"])
        siblings = {key: value for key, value in node.items() if key not in _DROPPED}
        return _convert({**branch, **siblings, **described}, definitions)
    return _plain(node, described, definitions)


def _plain(node: Mapping[str, Any], described: Schema, definitions: Mapping[str, Any]) -> Schema:
    schema = {key: node[key] for key in sorted(node.keys() - _DROPPED, key=_place)} | described
    if node.get("x-kubernetes-int-or-string"):
        schema["anyOf"] = node["anyOf"]
    if "properties" in node:
        schema["properties"] = {name: _convert(child, definitions) for name, child in node["properties"].items()}
    elif isinstance(node.get("additionalProperties"), Mapping):
        schema["additionalProperties"] = _convert(node["additionalProperties"], definitions)
    if "items" in node:
        schema["items"] = _convert(node["items"], definitions)
        schema["items"].pop("description", None)  # `kubectl explain` shows the list's own
    return schema


def _only_branch(branches: list[dict[str, Any]]) -> dict[str, Any]:
    """The branch that is not `null`; a real union has no structural form, so it is refused."""
    kept = [branch for branch in branches if branch.get("type") != "null"]
    if len(kept) != 1:
        raise ValueError(f"a structural schema has no unions, found {kept}; give the field one type")
    return kept[0]
