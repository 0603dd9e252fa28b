"""The projection of a PersistentVolumeClaim that keeps downloaded weights: how it can be mounted, and what is on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from graphpod_operator.api.names import STORED_PREFIX
from graphpod_operator.cache import shape, written_text
from graphpod_operator.cache.child import Child
from graphpod_operator.kube.cluster import Raw
from graphpod_operator.kube.field_ownership import claims
from graphpod_operator.kube.resources import Resource

MOST_STORED = 512
"""Folders of one claim that are read: an object's annotations have 256 KiB."""


class Stored(msgspec.Struct, frozen=True):
    """One complete folder: its URI, the commit or digest that it holds, its size in bytes, and the uid of the claim:
    annotations also reach claims that are restored or applied again, and those are empty.
    """

    uri: Annotated[str, msgspec.Meta(max_length=512)] = ""
    commit: Annotated[str, msgspec.Meta(max_length=128)] = ""
    bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 60)] = 0
    claim: Annotated[str, msgspec.Meta(max_length=64)] = ""

    @property
    def text(self) -> str:
        """As an annotation has it."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def read(cls, text: str) -> Stored | None:
        """What an annotation says; None of a text that the operator did not write."""
        return written_text.read(text, cls)


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim as it was read."""

    child: Child
    modes: tuple[str, ...]
    """Its access modes, in Kubernetes' words."""
    stored: Mapping[str, Stored]
    """Its complete folders, by name: those that were written down of this very claim."""
    storage: str | None = None
    """The size that it asks for, a quantity."""
    storage_class: str | None = None
    goes_along: bool = False
    """Whether we made it go with its service: the owner that it has is ours to write."""

    @property
    def maker(self) -> str | None:
        """The service that it was created for; None of one that somebody else made."""
        return self.child.key.name if self.child.key is not None else None

    @classmethod
    def of(cls, raw: Raw) -> Claim:
        """The projection of a claim."""
        return shape.projected(raw, shape.Claim, cls._of)

    @classmethod
    def _of(cls, raw: Raw) -> Claim:
        annotations = raw["metadata"].get("annotations") or {}
        named = [(key, text) for key, text in sorted(annotations.items()) if key.startswith(STORED_PREFIX)]
        read = {key.removeprefix(STORED_PREFIX): Stored.read(text) for key, text in named[:MOST_STORED]}
        spec, uid = raw.get("spec") or {}, raw["metadata"]["uid"]
        return cls(
            child=Child.of(Resource.PersistentVolumeClaim, raw),
            modes=tuple(spec.get("accessModes") or ()),
            stored={folder: one for folder, one in read.items() if one is not None and one.claim == uid},
            storage=((spec.get("resources") or {}).get("requests") or {}).get("storage"),
            storage_class=spec.get("storageClassName"),
            goes_along=claims(raw, "metadata", "ownerReferences")[0],
        )
