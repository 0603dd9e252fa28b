"""InferenceServices in a file, and where in it a mistake is: YAML and JSON, one document or several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ValidationError

from graphpod_operator import bounds
from graphpod_operator.api import API_VERSION, KIND, Spec
from graphpod_operator.api_model import first_mistake
from graphpod_operator.crd import NAME_RULES

Path = tuple[str | int, ...]


class ManifestInvalid(ValueError):
    """A file that cannot be explained: `line` (from 1) and `field` say where, the message says what is wrong."""

    def __init__(self, source: str, line: int, field: str, what: str) -> None:
        told = f"{field}: {what}" if field and not what.startswith(f"{field} ") else what
        super().__init__(f"{source}:{line}: {told}")
        self.source, self.line, self.field, self.what = source, line, field, what


@dataclass(frozen=True, slots=True)
class Manifest:
    """One InferenceService as written: its name, its spec, and its status if the file came from a cluster."""

    source: str
    name: str
    namespace: str
    spec: Spec
    raw: Mapping[str, Any]


def read(source: str, text: str) -> list[Manifest]:
    """The InferenceServices in `text`; other kinds are passed over. Raises ManifestInvalid for the first mistake."""
    try:
        nodes = list(yaml.compose_all(text, yaml.SafeLoader))
        found = [_manifest(source, node) for node in nodes if node is not None and _is_ours(node)]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise ManifestInvalid(source, mark.line + 1 if mark else 1, "", f"not YAML: {what}") from error
    except RecursionError as error:
        raise ManifestInvalid(source, 1, "", "nested too deep to be read") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ManifestInvalid(source, line, "", f"not YAML: a character {error.character:#x}") from error
    if not found:
        raise ManifestInvalid(source, 1, "kind", f"no {KIND} ({API_VERSION}) in this file")
    return found


def _is_ours(node: yaml.Node) -> bool:
    kind = _at(node, ("kind",))
    return isinstance(kind, yaml.ScalarNode) and kind.value == KIND


def _manifest(source: str, node: yaml.Node) -> Manifest:
    def invalid(path: Path, what: str) -> ManifestInvalid:
        return ManifestInvalid(source, _line(node, path), ".".join(str(part) for part in path), what)

    raw = _plain(node)
    if raw.get("apiVersion") != API_VERSION:
        raise invalid(("apiVersion",), f"expected {API_VERSION}, found {raw.get('apiVersion')}")
    metadata = raw.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise invalid(("metadata", "name"), "a service needs a name")
    for rule in NAME_RULES:
        if not rule.holds(raw):
            raise invalid(("metadata", "name"), rule.message)
    written = {} if raw.get("spec") is None else raw["spec"]
    if (breach := bounds.breach(written)) is not None:
        raise ManifestInvalid(source, _line(node, ("spec",)), "", breach)
    try:
        spec = Spec.model_validate(written)
    except ValidationError as error:
        place, what = first_mistake(error)
        raise invalid(("spec", *_known(_at(node, ("spec",)), place)), what) from error
    return Manifest(source, metadata["name"], metadata.get("namespace", "default"), spec, raw)


def _plain(node: yaml.Node) -> dict[str, Any]:
    loader = yaml.SafeLoader("")
    value = loader.construct_document(node)
    return value if isinstance(value, dict) else {}


def _known(node: yaml.Node | None, path: Path) -> Path:
    """`path` without the parts that only the validator knows of (the name of a check), with the missing last one."""
    kept: list[str | int] = []
    for index, part in enumerate(path):
        if _at(node, (*kept, part)) is not None or index == len(path) - 1:
            kept.append(part)
    return tuple(kept)


def _line(node: yaml.Node, path: Path) -> int:
    """Line of the deepest part of `path` that the file has; of its key where it has one."""
    for end in range(len(path), 0, -1):
        for key, value in _entries(_at(node, path[: end - 1])):
            if key == path[end - 1]:
                return value.start_mark.line + 1
    return node.start_mark.line + 1


def _at(node: yaml.Node | None, path: Path) -> yaml.Node | None:
    for part in path:
        if isinstance(node, yaml.MappingNode):
            node = next((value for key, value in node.value if key.value == part), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
        else:
            return None
    return node


def _entries(node: yaml.Node | None) -> Iterator[tuple[str | int, yaml.Node]]:
    """(key, node whose mark tells the line) of a mapping or list."""
    if isinstance(node, yaml.MappingNode):
        yield from ((key.value, key) for key, _ in node.value)
    elif isinstance(node, yaml.SequenceNode):
        yield from enumerate(node.value)
