"""InferenceServices in a file, and everything that is wrong with them: YAML and JSON, documents, and lists of objects
as `kubectl get` prints them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from pydantic import ValidationError

from graphpod_operator.api.names import API_VERSION, GROUP, KIND, SHORT_NAME
from graphpod_operator.api.spec import Spec
from graphpod_operator.explain.document import Document, NotYaml, Path, decoded, documents
from graphpod_operator.kube import bounds
from graphpod_operator.schema.crd import NAME_RULES
from graphpod_operator.schema.validation_errors import field_path, mistakes, shown

LISTS = ("List", f"{KIND}List")
DEFAULT_NAMESPACE = "default"
FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")
METADATA = (
    *("name", "namespace", "labels", "annotations", "generateName", "finalizers", "ownerReferences", "uid"),
    *("resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
    *("managedFields", "selfLink"),
)
"""The fields that the API server knows at the top, and of metadata."""
FROM_CLUSTER = f"kubectl get {SHORT_NAME} NAME -o yaml | graphpod explain -f -"


class Complaint(NamedTuple):
    """One thing that is wrong with a file: `line` (from 1) and `field` say where; `field` is empty for a whole file."""

    source: str
    line: int
    field: str
    what: str

    def __str__(self) -> str:
        what = f"{self.field}: {self.what}" if self.field and not self.what.startswith(f"{self.field} ") else self.what
        return f"{self.source}:{self.line}: {what}"


class ManifestInvalid(ValueError):
    """A file that cannot be explained, and all that is wrong with it."""

    def __init__(self, complaints: list[Complaint]) -> None:
        super().__init__("\n".join(map(str, complaints)))
        self.complaints = tuple(complaints)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One InferenceService as written: its name, its spec, and its status if the file came from a cluster."""

    source: str
    name: str
    namespace: str
    spec: Spec
    raw: Mapping[str, Any]


def read(source: str, data: bytes) -> list[Manifest]:
    """The InferenceServices in a file; other kinds are passed over. Raises ManifestInvalid."""
    try:
        found = [document for document in documents(decoded(data)) if document.value is not None]
    except NotYaml as error:
        raise ManifestInvalid([Complaint(source, error.line, "", error.what)]) from error
    services: list[Manifest] = []
    complaints: list[Complaint] = []
    for document in found:
        for path, raw in _objects(document, ()):
            if _is_ours(raw):
                service = _Service(source, document, path, raw)
                services += service.manifest()
                complaints += service.complaints
    if not services and not complaints:
        complaints = [_nothing(source, found)]
    if complaints:
        raise ManifestInvalid(sorted(complaints, key=lambda one: one.line))
    return services


def _objects(document: Document, path: Path) -> Iterator[tuple[Path, Any]]:
    """The objects of a document, those of a list each by its own path."""
    value = document.value
    items = value.get("items") or [] if isinstance(value, dict) and value.get("kind") in LISTS else None
    if isinstance(items, list):
        yield from (((*path, "items", number), item) for number, item in enumerate(items))
    else:
        yield path, value


def _is_ours(raw: Any) -> bool:
    """Whether the object is ours: KServe and OME have a kind of this name, too."""
    if not isinstance(raw, dict) or raw.get("kind") != KIND:
        return False
    version = raw.get("apiVersion")
    return not (isinstance(version, str) and "/" in version) or version.partition("/")[0] == GROUP


def _nothing(source: str, found: list[Document]) -> Complaint:
    """No InferenceService in a file, by what is there."""
    if not found:
        return Complaint(source, 1, "", f"the file is empty; write a service, or: {FROM_CLUSTER}")
    first = found[0]
    if not isinstance(first.value, dict):
        what = "a list" if isinstance(first.value, list) else shown(first.value)
        what = f"found {what}, expected an object with apiVersion, kind, metadata and spec"
        several = "; write several objects with --- between them, or as items of kind: List"
        return Complaint(source, first.line(()), "", what + (several if isinstance(first.value, list) else ""))
    kinds = dict.fromkeys(_kind(raw) for document in found for _, raw in _objects(document, ()))
    there = ", ".join(list(kinds)[:5]) + (", …" if len(kinds) > 5 else "")
    what = f"no {KIND} ({API_VERSION}) in this file; found {there or 'an empty list'}"
    return Complaint(source, first.line(("kind",)), "kind", what)


def _kind(raw: Any) -> str:
    if not isinstance(raw, dict) or not isinstance(raw.get("kind"), str):
        return "an object without kind"
    return f"{raw['kind']} ({raw.get('apiVersion')})"


class _Service:
    """One object of ours in a document, and what is wrong with it."""

    def __init__(self, source: str, document: Document, path: Path, raw: Mapping[str, Any]) -> None:
        self._source, self._document, self._path, self._raw = source, document, path, raw
        self.complaints: list[Complaint] = []

    def manifest(self) -> list[Manifest]:
        """The service, if nothing is wrong."""
        raw = self._raw
        for path, line in self._document.repeated:
            if path[: len(self._path)] == self._path:
                self._wrong(path[len(self._path) :], f"repeats the key of line {line}; remove one of them")
        self._known_fields((), raw, FIELDS)
        if raw.get("apiVersion") != API_VERSION:
            self._wrong(("apiVersion",), f"expected {API_VERSION}, found {shown(raw.get('apiVersion'))}")
        name, namespace = self._names()
        spec = self._spec()
        if self.complaints or spec is None:
            return []
        return [Manifest(self._source, name, namespace, spec, raw)]

    def _known_fields(self, place: Path, found: Mapping[Any, Any], fields: tuple[str, ...]) -> None:
        """The API server prunes all others, and `kubectl apply` refuses them."""
        for name in found:
            if name not in fields:
                near = get_close_matches(str(name), fields, 1)
                step = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(fields)}"
                self._wrong((*place, name), f"no such field; {step}")

    def _names(self) -> tuple[str, str]:
        raw, metadata = self._raw, self._raw.get("metadata")
        if not isinstance(metadata, dict):
            self._wrong(("metadata",), f"expected an object with a name, found {shown(metadata)}")
            return "", ""
        self._known_fields(("metadata",), metadata, METADATA)
        name, namespace = metadata.get("name"), metadata.get("namespace", DEFAULT_NAMESPACE)
        if not isinstance(name, str):
            what = "required" if name is None else f"expected text, found {shown(name)}"
            self._wrong(("metadata", "name"), what)
        else:
            for rule in NAME_RULES:
                if not rule.holds(raw):
                    self._wrong(("metadata", "name"), f"{rule.message}; found {shown(name)}")
        if not isinstance(namespace, str):
            what = f"expected the name of a namespace, found {shown(namespace)}; write it as text"
            self._wrong(("metadata", "namespace"), what)
        return str(name), str(namespace)

    def _spec(self) -> Spec | None:
        written = {} if self._raw.get("spec") is None else self._raw["spec"]
        if (breach := bounds.breach(written)) is not None:
            self.complaints.append(Complaint(self._source, self._line(("spec",)), "", breach))
            return None
        try:
            return Spec.model_validate(written)
        except ValidationError as error:
            for one in mistakes(error):
                self._wrong(("spec", *one.place), one.what)
            return None

    def _wrong(self, path: Path, what: str) -> None:
        known = self._known(path)
        self.complaints.append(Complaint(self._source, self._line(known), field_path(known), what))

    def _line(self, path: Path) -> int:
        return self._document.line((*self._path, *path))

    def _known(self, path: Path) -> Path:
        """`path` without the parts that only the validator knows of (the name of a check), with the missing last."""
        kept: list[str | int] = []
        for index, part in enumerate(path):
            if (*self._path, *kept, part) in self._document.lines or index in (0, len(path) - 1):
                kept.append(part)
        return tuple(kept)
