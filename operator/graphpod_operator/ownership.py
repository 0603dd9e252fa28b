"""What of an object is ours: the fields its managedFields give to our field manager, and a fingerprint of them.

A child is in order exactly when these fields equal what we desire. A value changed by hand leaves our set (the other
writer takes it), a field removed by hand leaves it too, and a field we no longer desire is still in it: each makes
the fingerprints differ. Foreign fields beside ours do not count.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

FIELD_MANAGER = "graphpod"

_IDENTITY = ("name", "namespace", "uid")


def fingerprint(fields: Mapping[str, Any]) -> str:
    """A short hash of plain values, independent of key order."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def desired_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields an applied body claims: all of it but its type and identity."""
    metadata = {key: value for key, value in body["metadata"].items() if key not in _IDENTITY}
    rest = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    return {"metadata": metadata, **rest}


def owned_fields(live: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a live object that our server-side applies own; empty when we own none."""
    for entry in live.get("metadata", {}).get("managedFields") or ():
        if entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply" and not entry.get("subresource"):
            projected = _project(live, entry.get("fieldsV1") or {})
            assert isinstance(projected, dict)  # the root of every object is a map
            return projected
    return {}


def _project(value: Any, fields: Mapping[str, Any]) -> Any:
    """The part of `value` that a fieldsV1 set names. A set without members below it names the whole value."""
    members = {key: child for key, child in fields.items() if key != "."}
    if not members:
        return value
    if isinstance(value, Mapping):
        return {
            key[2:]: _project(value[key[2:]], child)
            for key, child in members.items()
            if key.startswith("f:") and key[2:] in value
        }
    if isinstance(value, list):
        return _project_list(value, members)
    return value


def _project_list(items: list[Any], members: Mapping[str, Any]) -> list[Any]:
    """Items named by key (`k:{…}`) or by value (`v:…`), in the order the object has them."""
    keyed = [(json.loads(key[2:]), child) for key, child in members.items() if key.startswith("k:")]
    values = [json.loads(key[2:]) for key in members if key.startswith("v:")]
    kept = []
    for item in items:
        if item in values:
            kept.append(item)
            continue
        for keys, child in keyed:
            if isinstance(item, Mapping) and all(item.get(name) == wanted for name, wanted in keys.items()):
                kept.append(_project(item, child))
                break
    return kept
