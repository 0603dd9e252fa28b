"""What services may use: lists of the operator's installer for volumes, Gateways, hostnames, images and sources. Pure.

The operator makes objects with its own rights. Without these lists a user with rights to InferenceServices alone would
use those of the operator: for a hostPath volume, a route through any Gateway under any hostname, or a download from any
host. A service that breaks a list is refused as a whole (Accepted=False, NotAllowed); what runs of it stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from graphpod_operator.api.pod import Volume
from graphpod_operator.api.spec import Spec
from graphpod_operator.intent.model_uri import ModelUri
from graphpod_operator.intent.source_hosts import source_hosts

EVERYTHING = ("*",)
RESTRICTED_VOLUMES = (
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
)  # fmt: skip
"""The types of volume that pod-security `restricted` allows."""
SHOWN = 80
"""Characters of a value in a message, so that the list has room behind it."""
FOUND = 200
"""Characters of a text in the message that it holds no lists."""
NAMES = {
    "volumeTypes": "volume_types",
    "gateways": "gateways",
    "hostnames": "hostnames",
    "images": "images",
    "sources": "sources",
    "sourceHosts": "source_hosts",
}
"""The lists by their names in JSON and in the chart's value `allowed`."""
EXAMPLE = (
    '{"volumeTypes": ["emptyDir", "secret"], "gateways": ["edge/*"], "hostnames": ["*.example.com"], "images": ["*"]}'
)


class AllowListsInvalid(ValueError):
    """The text is not a set of lists; the message says how one is written."""


@dataclass(frozen=True, slots=True)
class AllowLists:
    """One list for each thing that a spec can name. `*` in an entry stands for any text, and the entry `*` alone allows
    everything; an empty list allows nothing. Default: everything.
    """

    volume_types: tuple[str, ...] = EVERYTHING
    """Types of spec.podTemplate.volumes, such as emptyDir."""
    gateways: tuple[str, ...] = EVERYTHING
    """NAMESPACE/NAME of Gateways in spec.networking.route.parentRefs."""
    hostnames: tuple[str, ...] = EVERYTHING
    """Hostnames of spec.networking.route."""
    images: tuple[str, ...] = EVERYTHING
    """spec.engine.image, and the images of volumes. The operator's own engine images are always allowed."""
    sources: tuple[str, ...] = EVERYTHING
    """URIs of spec.model.uri and spec.engine.speculative.draftModel that are downloaded or streamed."""
    source_hosts: tuple[str, ...] = EVERYTHING
    """HOST or HOST:PORT that downloads connect to; Job and engine check it too, for redirects."""

    @classmethod
    def read(cls, text: str) -> AllowLists:
        """From JSON: {"volumeTypes": [type, …], "gateways": […], …}, one list for each of `NAMES`; a list that is
        absent allows everything. Raises AllowListsInvalid.
        """
        try:
            given = json.loads(text)
            lists = {NAMES[key]: tuple(entries) for key, entries in given.items() if isinstance(entries, list)}
            right = len(lists) == len(given)
        except (ValueError, KeyError, AttributeError, RecursionError):
            right, lists = False, {}
        if not right or not all(isinstance(entry, str) and entry for entries in lists.values() for entry in entries):
            raise AllowListsInvalid(f"expected lists of texts such as {EXAMPLE}; found {text[:FOUND]!r}")
        return cls(**lists)

    def breach(self, spec: Spec, namespace: str) -> str | None:
        """The first value of a spec in this namespace that is not allowed: field, value, list. None: all are."""
        return next((found for check in _CHECKS for found in check(self, spec, namespace)), None)


DEFAULT = AllowLists(volume_types=(*RESTRICTED_VOLUMES, "image"))
"""What an operator allows that is not given a list."""


def _volumes(allowed: AllowLists, spec: Spec, _: str) -> Iterator[str]:
    for volume in spec.pod_template.volumes:
        for kind in types(volume):
            if not _matches(kind, allowed.volume_types):
                yield _message(f"spec.podTemplate.volumes[{volume.name}]", kind, "volumeTypes", allowed.volume_types)


def _gateways(allowed: AllowLists, spec: Spec, namespace: str) -> Iterator[str]:
    route = spec.networking.route
    for ref in route.parent_refs if route else ():
        gateway = f"{ref.namespace or namespace}/{ref.name}"
        if not _matches(gateway, allowed.gateways):
            yield _message("spec.networking.route.parentRefs", gateway, "gateways", allowed.gateways)


def _hostnames(allowed: AllowLists, spec: Spec, _: str) -> Iterator[str]:
    route = spec.networking.route
    if route is None or allowed.hostnames == EVERYTHING:
        return
    # a route without hostnames takes all that the Gateway's listeners have
    for host in route.hostnames or ("(none: every host of the Gateway)",):
        if not _matches(host, allowed.hostnames):
            yield _message("spec.networking.route.hostnames", host, "hostnames", allowed.hostnames)


def _images(allowed: AllowLists, spec: Spec, _: str) -> Iterator[str]:
    named = [("spec.engine.image", spec.engine.image)]
    for volume in spec.pod_template.volumes:
        source = volume.source.get("image")
        if source is not None:  # what is no reference is for the API server to refuse
            reference = source.get("reference") if isinstance(source, dict) else None
            named.append((f"spec.podTemplate.volumes[{volume.name}].image.reference", str(reference or "")))
    for field, image in named:
        if image is not None and not _matches(image, allowed.images):
            yield _message(field, image, "images", allowed.images)


def _sources(allowed: AllowLists, spec: Spec, _: str) -> Iterator[str]:
    for field, uri in _downloads(spec):
        if not _matches(uri.text, allowed.sources):
            yield _message(field, uri.text, "sources", allowed.sources)


def _source_hosts(allowed: AllowLists, spec: Spec, _: str) -> Iterator[str]:
    if allowed.source_hosts == EVERYTHING:
        return
    entries = tuple(entry.lower() for entry in allowed.source_hosts)
    for field, uri in _downloads(spec):
        for one in source_hosts(uri, field, spec):
            host = one.host.lower()
            if not _matches(host, entries) and not _matches(f"{host}:{one.port}", entries):
                yield _message(one.field, f"{host}:{one.port}", "sourceHosts", allowed.source_hosts)


def _downloads(spec: Spec) -> Iterator[tuple[str, ModelUri]]:
    """What a spec downloads or streams, and the field that says so."""
    if spec.model.cache is None and not spec.model.stream:
        return
    speculative = spec.engine.speculative
    draft = speculative.draft_model if speculative is not None else None
    for field, text in (("spec.model.uri", spec.model.uri), ("spec.engine.speculative.draftModel", draft)):
        if text is not None and (uri := ModelUri.parse(text)).is_download:
            yield field, uri


_CHECKS: tuple[Callable[[AllowLists, Spec, str], Iterator[str]], ...] = (
    _volumes,
    _gateways,
    _hostnames,
    _images,
    _sources,
    _source_hosts,
)


def types(volume: Volume) -> tuple[str, ...]:
    """The types of a volume: one, unless the API server will refuse it. Without any it is an emptyDir."""
    return tuple(kind for kind, source in volume.source.items() if source is not None) or ("emptyDir",)


def _matches(value: str, entries: Iterable[str]) -> bool:
    return any(fnmatchcase(value, entry.replace("[", "[[]").replace("?", "[?]")) for entry in entries)


def _message(field: str, value: str, name: str, entries: tuple[str, ...]) -> str:
    """Which value stands where, and what would be allowed."""
    shown = value if len(value) <= SHOWN else value[: SHOWN - 1] + "…"
    return f"{field}: {shown} is not in allowed.{name}: {', '.join(entries) or 'nothing'}"
