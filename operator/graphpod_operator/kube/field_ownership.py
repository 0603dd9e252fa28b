"""What of an object is ours: the fields its managedFields give to our field manager, and a fingerprint of them.

A child is in order exactly when these fields equal what we desire. A value changed by hand leaves our set (the other
writer takes it), a field removed by hand leaves it too, and a field we no longer desire is still in it: each makes
the fingerprints differ. Other writers' fields do not count.

Each child carries the fingerprint of what we applied last. Where our fields still have it, the child is unchanged,
and what differs from the plan is a new plan. Who owns the child is judged by itself, and is not in the fingerprint.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

FIELD_MANAGER = "graphpod"
HOLDER = "graphpod-handover"
"""The second field manager, which claims the number of pods while it passes from us to an autoscaler."""
STORED_MANAGER = "graphpod-models"
"""The field manager of a claim's annotations about complete folders: the claim itself may be somebody else's."""

APPLIED_ANNOTATION = "graphpod.dev/applied"
"""Of a child: the fingerprint of the fields we applied last."""

_APART = ("name", "namespace", "uid", "ownerReferences")
"""Metadata that says which object it is, and whose."""


def fingerprint(fields: Mapping[str, Any]) -> str:
    """A short hash of plain values, independent of key order."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def desired_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields an applied body claims: all of it but its type, identity, owner and mark."""
    rest = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    return {"metadata": _metadata(body["metadata"]), **rest}


def marked(body: Mapping[str, Any], owned: str) -> dict[str, Any]:
    """A body to apply that carries the fingerprint of its fields."""
    annotations = {**body["metadata"].get("annotations", {}), APPLIED_ANNOTATION: owned}
    return {**body, "metadata": {**body["metadata"], "annotations": annotations}}


def mark(live: Mapping[str, Any]) -> str:
    """The fingerprint of what we applied last, as a live object carries it; empty without one."""
    applied: str = (live["metadata"].get("annotations") or {}).get(APPLIED_ANNOTATION, "")
    return applied


def owned_fields(live: Mapping[str, Any]) -> dict[str, Any]:
    """The same fields of a live object, as far as our server-side applies own them; empty when we own none."""
    for entry in live.get("metadata", {}).get("managedFields") or ():
        if entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply" and not entry.get("subresource"):
            projected = _project(live, entry.get("fieldsV1") or {})
            assert isinstance(projected, dict)  # the root of every object is a map
            return projected | ({"metadata": _metadata(projected["metadata"])} if "metadata" in projected else {})
    return {}


def _metadata(applied: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in applied.items() if key not in _APART}
    annotations = metadata.pop("annotations", None) or {}
    kept = {key: value for key, value in annotations.items() if key != APPLIED_ANNOTATION}
    return metadata | ({"annotations": kept} if kept else {})


def changed_fields(wanted: Any, stored: Any, path: str = "") -> Iterator[str]:
    """The paths at which two values of fields differ, such as spec.template.spec.containers[engine].image."""
    if isinstance(wanted, Mapping) and isinstance(stored, Mapping):
        for key in sorted({*wanted, *stored}):
            yield from changed_fields(wanted.get(key), stored.get(key), f"{path}.{key}" if path else key)
    elif isinstance(wanted, list) and isinstance(stored, list) and len(wanted) == len(stored):
        for number, (one, other) in enumerate(zip(wanted, stored, strict=True)):
            name = one.get("name", number) if isinstance(one, Mapping) else number
            yield from changed_fields(one, other, f"{path}[{name}]")
    elif wanted != stored:
        yield path


def claims(live: Mapping[str, Any], *path: str) -> tuple[bool, bool]:
    """Whether a field is ours, and whether anybody else's."""
    ours = others = False
    for entry in live.get("metadata", {}).get("managedFields") or ():
        fields: Any = entry.get("fieldsV1") or {}
        for name in path:
            fields = fields.get(f"f:{name}") if isinstance(fields, Mapping) else None
        if fields is not None:
            mine = entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply"
            ours, others = ours or mine, others or not mine
    return ours, others


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
    keyed = [(_named(key[2:]), child) for key, child in members.items() if key.startswith("k:")]
    values = [_named(key[2:]) for key in members if key.startswith("v:")]
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


@lru_cache(1024)
def _named(text: str) -> Any:
    """What the name of a list's item says: mostly the same few in every object of a kind. Not to be changed."""
    return json.loads(text)
