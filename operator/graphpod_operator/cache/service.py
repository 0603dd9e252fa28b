"""The projection of an InferenceService: spec and status are kept, the rest as far as it decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, cast

import msgspec

from graphpod_operator.api.names import (
    ADOPT_ANNOTATION,
    PAUSED_ANNOTATION,
    QUEUE_LABEL,
    RELOAD_ANNOTATION,
    SLEEP_ANNOTATION,
)
from graphpod_operator.api.status import MESSAGE_MAX
from graphpod_operator.cache import shape
from graphpod_operator.cache.key import Key
from graphpod_operator.kube import bounds
from graphpod_operator.kube.cluster import Raw
from graphpod_policy.limits import MOST_CONTEXT, MOST_SIZES

ADOPT_MAX = 253
"""Characters of the annotation graphpod.dev/adopt that count: an annotation of the Deployment repeats them."""
ANNOTATION_MAX = 253
"""Characters of graphpod.dev/sleep and graphpod.dev/reload that can be obeyed: pods and status repeat them."""


@dataclass(frozen=True, slots=True)
class Service:
    """An InferenceService as stored: its spec and status are what the operator works on, so they are kept."""

    key: Key
    uid: str
    version: int
    generation: int
    deleting: bool
    spec: Raw
    status: Raw
    paused: bool = False
    """Its user wants only its status written."""
    mispaused: str | None = None
    """The annotation graphpod.dev/paused, where it says neither yes nor no."""
    queue: str | None = None
    """The Kueue queue that its pods wait in."""
    adopt: str | None = None
    """The revision that its user takes over from this operator."""
    sleep: str | None = None
    """The annotation graphpod.dev/sleep."""
    reload: str | None = None
    """The annotation graphpod.dev/reload. Of both one character more than can be obeyed is kept."""
    breach: str | None = None
    """Which bound it breaks; its spec was not read then."""

    @classmethod
    def of(cls, raw: Raw) -> Service:
        """The projection of an InferenceService."""
        return shape.projected(raw, shape.Service, cls._of)

    @classmethod
    def _of(cls, raw: Raw) -> Service:
        metadata, spec = raw["metadata"], raw.get("spec") or {}
        breach = raw.get(bounds.BREACH) or bounds.breach(spec)
        annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
        return cls(
            key=Key(metadata["namespace"], metadata["name"]),
            uid=metadata["uid"],
            version=int(metadata["resourceVersion"]),
            generation=metadata.get("generation", 1),
            deleting="deletionTimestamp" in metadata,
            spec=spec if breach is None else {},
            status=_believed(raw.get("status") or {}),
            paused=(pause := annotations.get(PAUSED_ANNOTATION)) == "true",
            mispaused=_short(pause) if pause not in (None, "true", "false") else None,
            queue=labels.get(QUEUE_LABEL),
            adopt=adopt[:ADOPT_MAX] if (adopt := annotations.get(ADOPT_ANNOTATION)) is not None else None,
            sleep=_short(annotations.get(SLEEP_ANNOTATION)),
            reload=_short(annotations.get(RELOAD_ANNOTATION)),
            breach=breach,
        )

    @property
    def nodes(self) -> int:
        """Pods of one replica, by the spec as it is stored, which may break the schema."""
        spread = self.spec.get("parallelism")
        asked = spread.get("nodes") if isinstance(spread, Mapping) else None
        return asked if isinstance(asked, int) else 1

    @property
    def downloads(self) -> bool:
        """Whether it asks for weights that are downloaded."""
        model = self.spec.get("model")
        return isinstance(model, Mapping) and model.get("cache") is not None

    def asks_as(self, other: Service) -> bool:
        """Whether its user asks for the same as in `other`: all but version and status, which is ours, are equal."""
        return replace(self, version=other.version, status=other.status) == other


def _short(value: str | None) -> str | None:
    return None if value is None else value[: ANNOTATION_MAX + 1]


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str
    reason: str
    lastTransitionTime: Annotated[str, msgspec.Meta(max_length=64)] = ""  # written again as it is


class _Phase(msgspec.Struct, frozen=True):
    effective: str | None = None


_AdvisedLadder = Annotated[
    tuple[Annotated[int, msgspec.Meta(ge=1, le=MOST_CONTEXT)], ...], msgspec.Meta(max_length=MOST_SIZES)
]


class _Advice(msgspec.Struct, frozen=True):
    message: Annotated[str, msgspec.Meta(max_length=MESSAGE_MAX)]
    prefill: _AdvisedLadder | None = None
    decode: _AdvisedLadder | None = None


class _Graph(msgspec.Struct, frozen=True):
    prefill: _Phase = _Phase()
    decode: _Phase = _Phase()
    advice: _Advice | None = None


class _Failure(msgspec.Struct, frozen=True):
    reason: Annotated[str, msgspec.Meta(max_length=64)] = ""
    message: Annotated[str, msgspec.Meta(max_length=MESSAGE_MAX)] = ""
    pod: Annotated[str, msgspec.Meta(max_length=253)] | None = None
    exitCode: int | None = None
    restarts: Annotated[int, msgspec.Meta(ge=0)] = 0


class _Status(msgspec.Struct, frozen=True):
    """What of a status is read again, and of which type."""

    phase: str = ""
    conditions: tuple[_Condition, ...] = ()
    revision: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    graph: _Graph = _Graph()
    lastFailure: _Failure | None = None


def _believed(status: Any) -> Raw:
    """A status as it was read; one that no operator wrote so, by an edit or from a backup of another version, counts as
    missing, and is written again.
    """
    try:
        msgspec.convert(status, _Status)
    except msgspec.ValidationError:
        return {}
    return cast(Raw, status)
