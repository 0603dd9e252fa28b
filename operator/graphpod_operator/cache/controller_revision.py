"""What a ControllerRevision keeps of a rendering, and whether it can be read."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from graphpod_operator.api.names import HASH_ANNOTATION
from graphpod_operator.kube.cluster import Raw
from graphpod_policy import config_hash

_Number = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
_QUICK = 1
"""zlib's level for what is kept: somewhat larger, and sooner done."""


@dataclass(frozen=True, slots=True)
class StoredRevision:
    """What a ControllerRevision keeps: the memory that the operator decides by, and so the one body that stays, packed.

    `number` orders them by age, `trouble` says why one is corrupt.
    """

    number: int
    packed: bytes
    trouble: str | None

    @classmethod
    def of(cls, raw: Raw) -> StoredRevision:
        """The memory in a ControllerRevision."""
        data = raw.get("data")
        trouble = unreadable(data)
        texts = {} if trouble or data is None else {name: text for name, text in data.items() if isinstance(text, str)}
        return cls(_number(raw.get("revision")), zlib.compress(msgspec.json.encode(texts), _QUICK), trouble)

    @property
    def data(self) -> Mapping[str, str]:
        """What was kept; only of one that is without trouble."""
        data: Mapping[str, str] = msgspec.json.decode(zlib.decompress(self.packed))
        return data


def _number(written: Any) -> int:
    """A number that leaves room for larger ones, as the newest memory gets the largest; 0 for any other."""
    try:
        return msgspec.convert(written, _Number)
    except msgspec.ValidationError:
        return 0


MADE_FROM, ENGINE, WORKLOAD, PLAN = "madeFrom", "engine.json", "workload.json", "plan.json"
"""What is kept: the fingerprint of the spec, the engine's configuration, the Deployment's part, and the words of the
plan, for status alone.
"""
UNDEGRADED = "undegraded"
"""What a weaker form of a rendering keeps as well: the revision that it is a weaker form of."""

_Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class _Probe(msgspec.Struct):
    periodSeconds: _Count
    failureThreshold: _Count


class _Container(msgspec.Struct):
    image: str
    startupProbe: _Probe


class _Named(msgspec.Struct):
    name: str


class _Pod(msgspec.Struct):
    containers: Annotated[list[_Container], msgspec.Meta(min_length=1)]
    volumes: list[_Named]
    imagePullSecrets: list[_Named] = []


class _Metadata(msgspec.Struct):
    annotations: dict[str, str]


class _Template(msgspec.Struct):
    metadata: _Metadata
    spec: _Pod


class _Workload(msgspec.Struct):
    """What of a Deployment's part is read again, and of which type. A Deployment's has no `size`."""

    template: _Template
    size: _Count = 1


class _Engine(msgspec.Struct):
    graph: dict[str, Any]


def unreadable(data: Any) -> str | None:
    """Why no rendering can be read from what a ControllerRevision holds; None when one can."""
    try:
        made_from, engine, text = data[MADE_FROM], data[ENGINE].encode(), data[WORKLOAD]
        msgspec.json.decode(engine, type=_Engine)
        workload = msgspec.json.decode(text, type=_Workload)
        named = workload.template.metadata.annotations[HASH_ANNOTATION]
    except KeyError as error:
        return f"it has no {error.args[0]}"
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        return f"it holds something else: {error}"
    if not isinstance(made_from, str):
        return "it holds something else"
    return (
        None if named == config_hash(engine) else f"its pods name configuration {named}, which is not the one it holds"
    )
