"""The projection of a PersistentVolumeClaim that keeps downloaded weights: how it can be mounted, and what is on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from graphpod_operator.api.names import STORED_PREFIX
from graphpod_operator.cache.child import Child
from graphpod_operator.kube.cluster import Raw
from graphpod_operator.kube.field_ownership import claims
from graphpod_operator.kube.resources import Resource

MOST_STORED = 512
"""Folders of one claim that are read: an object's annotations have 256 KiB."""


class Stored(msgspec.Struct, frozen=True):
    """One complete folder: its URI, the commit or digest that it holds, its size in bytes."""

    uri: Annotated[str, msgspec.Meta(max_length=512)] = ""
    commit: Annotated[str, msgspec.Meta(max_length=128)] = ""
    bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 60)] = 0

    @property
    def text(self) -> str:
        """As an annotation has it."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def read(cls, text: str) -> Stored:
        """What an annotation says; a text that somebody wrote by hand counts as the commit."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError:
            return cls(commit=text[:128])


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim as it was read."""

    child: Child
    modes: tuple[str, ...]
    """Its access modes, in Kubernetes' words."""
    stored: Mapping[str, Stored]
    """Its complete folders, by name."""
    storage: str | None = None
    """The size that it asks for, a quantity."""
    goes_along: bool = False
    """Whether we made it go with its service: the owner that it has is ours to write."""

    @property
    def maker(self) -> str | None:
        """The service that it was created for; None of one that somebody else made."""
        return self.child.key.name if self.child.key is not None else None

    @classmethod
    def of(cls, raw: Raw) -> Claim:
        """The projection of a claim."""
        annotations = raw["metadata"].get("annotations") or {}
        named = [(key, text) for key, text in sorted(annotations.items()) if key.startswith(STORED_PREFIX)]
        spec = raw.get("spec") or {}
        return cls(
            child=Child.of(Resource.PersistentVolumeClaim, raw),
            modes=tuple(spec.get("accessModes") or ()),
            stored={key.removeprefix(STORED_PREFIX): Stored.read(text) for key, text in named[:MOST_STORED]},
            storage=((spec.get("resources") or {}).get("requests") or {}).get("storage"),
            goes_along=claims(raw, "metadata", "ownerReferences")[0],
        )
