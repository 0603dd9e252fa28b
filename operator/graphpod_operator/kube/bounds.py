"""How large and how deep an object may be that the operator reads, and what is read of one that is neither.

Whoever may write an object may make it a megabyte large, or nest it a thousand levels deep: more than a JSON reader
takes, and a hundred times as much memory. Such an object is never decoded as a whole. Its *outline* is: name, labels,
owner and status, and under BREACH what is wrong with it. So it is known, and can be reported, and nothing else waits
for it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec

ANSWER_BYTES = 16 * 1024 * 1024
"""Of one answer, or of one line of a watch. A page that is longer is asked for again with half as many objects. The
largest object that etcd takes by default, 1.5 MiB, has at most 9 MiB as JSON.
"""
OBJECT_BYTES = 512 * 1024
"""Of one object as JSON. The largest spec that the schema admits makes objects of about 450 KiB."""
MADE_BYTES = OBJECT_BYTES - 32 * 1024
"""Of an object that we make, before the API server adds who owns which field. Text of quotation marks is twice as long
in a ControllerRevision as in the spec.
"""
OBJECT_DEPTH = 128
"""Levels of one object, managedFields included. Those of Kubernetes' own kinds have about 20."""
SPEC_DEPTH = 32
"""Levels of the spec of an InferenceService. A pod's affinity has 10."""
SPEC_VALUES = 4096
"""Values in such a spec, maps and lists included: each takes some hundred bytes in memory and on the API server."""
STATUS_BYTES = 64 * 1024
"""Of a status that an outline still has."""

BREACH = "graphpod.dev/breach"
"""Key of an outline: the bound that the object breaks. The API server stores no such field in any kind that we read."""

KEPT = (
    *("name", "namespace", "uid", "resourceVersion", "generation", "deletionTimestamp"),
    *("labels", "annotations", "ownerReferences"),
)
"""Of the metadata, in an outline. Each of them is bounded by the API server."""

Object = dict[str, Any]


class Owner(msgspec.Struct):
    """An owner of an object."""

    apiVersion: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None


_Version = Annotated[str, msgspec.Meta(pattern=r"^[0-9]+$", max_length=20)]
_Labels = dict[str, str]


class Metadata(msgspec.Struct):
    """What is read of an object's metadata, and of which type; the first four say which object it is."""

    name: str
    namespace: str
    uid: str
    resourceVersion: _Version
    generation: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = 1
    labels: _Labels | None = None
    annotations: _Labels | None = None
    ownerReferences: list[Owner] | None = None
    deletionTimestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    deletionGracePeriodSeconds: int | None = None
    finalizers: list[str] | None = None


_TYPES = {field.name: field.type for field in msgspec.structs.fields(Metadata)}

# strings, with the colon that makes one a key; runs of brackets
_TOKEN = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|[\[{]+|[\]}]+', re.DOTALL)
_SHALLOW = 500
"""So many brackets, if they were all nested, are within what any JSON reader takes."""


def read(text: bytes) -> Object:
    """An object from its JSON, or its outline. Raises ValueError where the text is no object."""
    if len(text) > OBJECT_BYTES:
        return outline(text, f"the object has {len(text) // 1024} KiB, more than {OBJECT_BYTES // 1024}")
    try:
        found: Object = msgspec.json.decode(text, type=dict)
    except RecursionError:
        return _too_deep(text)
    return found


def event(line: bytes) -> Object:
    """An event of a watch from its line, its object as `read` has it. Raises ValueError where the line is no event."""
    if len(line) > OBJECT_BYTES:
        return _checked(_apart(line, read))
    try:
        return _checked(msgspec.json.decode(line, type=dict))
    except RecursionError:
        return _checked(_apart(line, _too_deep))


def for_others(line: bytes) -> bytes:
    """The line of an event for a reader that is not ours: as it is, or with the outline of its object. Raises
    ValueError where the line is no event.
    """
    if len(line) > OBJECT_BYTES:
        return msgspec.json.encode(_apart(line, read))
    return line if is_shallow(line) else msgspec.json.encode(_apart(line, _too_deep))


def _apart(line: bytes, reader: Callable[[bytes], Object]) -> Object:
    spans = {_plain(key): (begin, end) for key, begin, end in parts(line)}
    if not {"type", "object"}.issubset(spans):
        raise ValueError("an event has a type and an object")
    return {"type": _plain(line[slice(*spans["type"])]), "object": reader(_trimmed(line[slice(*spans["object"])]))}


def _checked(event: Object) -> Object:
    """An event. Raises ValueError where it is none: any but an error has an object of a version."""
    match event:
        case {"type": "ERROR", "object": {}}:
            return event
        case {"type": str(), "object": {"metadata": {"resourceVersion": str(version)}}} if version.isdecimal():
            return event
    raise ValueError("an event has a type and an object of a version")


def _too_deep(text: bytes) -> Object:
    return outline(text, f"the object is nested more than {OBJECT_DEPTH} levels deep")


class PageMetadata(msgspec.Struct, rename={"version": "resourceVersion", "more": "continue"}):
    """Of a page: the version of its list, and what to ask for the next one with; empty on the last."""

    version: _Version
    more: str = ""


class Page(msgspec.Struct):
    """A page of a list, whose objects are still as they came."""

    metadata: PageMetadata
    items: list[msgspec.Raw]

    @classmethod
    def of(cls, text: bytes) -> Page:
        """A page from its JSON. Raises ValueError for other text."""
        try:
            return msgspec.json.decode(text, type=cls)
        except RecursionError:  # one object is nested too deep; the others are as they should be
            metadata, items = _apart_page(text)
            return cls(msgspec.json.decode(metadata, type=PageMetadata), [*map(msgspec.Raw, items)])


def _apart_page(text: bytes) -> tuple[bytes, list[bytes]]:
    """Of a list: its metadata and its items, each as it stands, without a look into any."""
    spans = {_plain(key): (begin, end) for key, begin, end in parts(text)}
    if not {"metadata", "items"} <= spans.keys():
        raise ValueError("neither metadata nor items")
    items = parts(text, text.index(b"[", spans["items"][0]))
    return _trimmed(text[slice(*spans["metadata"])]), [text[begin:end] for _, begin, end in items]


def outline(text: bytes, why: str) -> Object:
    """What is read of an object that breaks a bound, and which. Raises ValueError where the text is no object."""
    found: Object = {}
    for key, begin, end in parts(text):
        match _plain(key):
            case "metadata":
                kept = ((_plain(name), value) for name, *value in parts(text, text.index(b"{", begin)))
                found["metadata"] = {name: _plain(text[slice(*value)]) for name, value in kept if name in KEPT}
            case "status" if end - begin <= STATUS_BYTES and is_shallow(text[begin:end]):
                found["status"] = _plain(text[begin:end])
            case "apiVersion" | "kind" as name:
                found[name] = _plain(text[begin:end])
    if "metadata" not in found:
        raise ValueError("no metadata")
    return found | {BREACH: why}


def stripped(raw: Mapping[str, Any], why: str) -> Object:
    """The outline of an object that was decoded, and turned out to be none that can be worked with: what of its
    metadata is of its type.
    """
    return {"metadata": {name: value for name, value in raw["metadata"].items() if _is_kept(name, value)}, BREACH: why}


def _is_kept(name: str, value: Any) -> bool:
    try:
        msgspec.convert(value, _TYPES[name])
    except (KeyError, msgspec.ValidationError):
        return False
    return name in KEPT


def breach(spec: Any) -> str | None:
    """Which bound a spec breaks, and where; None when it keeps them. Half of a surrogate pair breaks one: JSON can have
    it, and no text can be written with it.
    """
    values, level = 0, [("spec", spec)]
    for _ in range(SPEC_DEPTH):
        values += len(level)
        if values > SPEC_VALUES:
            field = level[-1][0].rpartition(".")[0] or "spec"
            return f"{field}: the spec has more than {SPEC_VALUES} values"
        for path, value in level:
            if _is_no_text(path) or _is_no_text(value):
                return f"{path.encode(errors='replace').decode()}: half of a surrogate pair is no text"
        level = [part for path, value in level for part in _inside(path, value)]
        if not level:
            return None
    field = ".".join(level[0][0].split(".")[:4])
    return f"{field}: the spec is nested more than {SPEC_DEPTH} levels deep"


def _is_no_text(value: Any) -> bool:
    if not isinstance(value, str) or value.isascii():
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return True
    return False


def oversized(body: Mapping[str, Any]) -> int | None:
    """The bytes of an object that we would make, if it is one that we would not read; else None."""
    size = len(msgspec.json.encode(body))
    return size if size > MADE_BYTES else None


def largest(spec: Any) -> str:
    """The field of a spec that takes most, such as spec.podTemplate.env."""
    path, value = "spec", spec
    while isinstance(value, Mapping) and value and path.count(".") < 2:
        key, value = max(value.items(), key=lambda item: len(msgspec.json.encode(item[1])))
        path = f"{path}.{key}"
    return path


def _inside(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The values right inside of another, by their places."""
    if isinstance(value, Mapping):
        yield from ((f"{path}.{str(key)[:64]}", inner) for key, inner in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"{path}[{number}]", inner) for number, inner in enumerate(value))


def is_shallow(text: bytes) -> bool:
    """Whether a JSON text is nested at most OBJECT_DEPTH levels deep, or at least not too deep for any reader."""
    if text.count(b"{") + text.count(b"[") <= _SHALLOW:
        return True
    depth = 0
    for token in _TOKEN.finditer(text):
        run = token.end() - token.start()
        match text[token.start()]:
            case 0x7B | 0x5B:
                depth += run
                if depth > OBJECT_DEPTH:
                    return False
            case 0x7D | 0x5D:
                depth -= run
    return True


def parts(text: bytes, begin: int = 0) -> Iterator[tuple[bytes, int, int]]:
    """What stands right inside the map or list that begins at `begin`: the key as it is written (of a list's items, an
    empty one) and where the value begins and ends. Of a list only maps and lists. It does not recurse.
    """
    is_list = text[begin : begin + 1] == b"["
    depth, key, start = 0, b"", -1
    for token in _TOKEN.finditer(text, begin):
        at, run = token.start(), token.end() - token.start()
        match text[at]:
            case 0x22:
                if depth == 1 and token[2]:
                    if start >= 0:
                        yield key, start, at
                    key, start = token[1], token.end()
            case 0x7B | 0x5B:
                if is_list and depth <= 1 < depth + run:
                    start = at + 1 - depth
                depth += run
            case _:
                if is_list and depth - run <= 1 < depth:
                    yield b"", start, at + depth - 1
                if depth <= run:
                    if not is_list and start >= 0:
                        yield key, start, at + depth - 1
                    return
                depth -= run
    raise ValueError("the text is cut")


def _trimmed(value: bytes) -> bytes:
    return value.strip(b", \t\r\n")


def _plain(value: bytes) -> Any:
    return msgspec.json.decode(_trimmed(value))
