"""The ControllerRevision that keeps a rendering: what was made once is applied again, and never rendered anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from graphpod_operator.render.subject import HASH_ANNOTATION, Body, Subject
from graphpod_operator.resource import Resource
from graphpod_policy import config_hash

MADE_FROM, ENGINE, WORKLOAD, PLAN = "madeFrom", "engine.json", "workload.json", "plan.json"
"""What is kept: the fingerprint of the spec, the engine's configuration, the Deployment's part, and the words of the
plan, for status alone.
"""
UNDEGRADED = "undegraded"
"""What a weaker form of a rendering keeps beside that: the revision that it is a weaker form of."""

_Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


def controller_revision(subject: Subject, revision: str, data: Mapping[str, str], number: int) -> Body:
    """The memory of one rendering. `data` never changes; the highest `number` is the rendering in use."""
    return subject.child(
        Resource.ControllerRevision,
        subject.revision_name(revision),
        data=dict(data),
        revision=number,
    )


class _Probe(msgspec.Struct):
    periodSeconds: _Count
    failureThreshold: _Count


class _Container(msgspec.Struct):
    image: str
    startupProbe: _Probe


class _Volume(msgspec.Struct):
    name: str


class _Pod(msgspec.Struct):
    containers: Annotated[list[_Container], msgspec.Meta(min_length=1)]
    volumes: list[_Volume]


class _Metadata(msgspec.Struct):
    annotations: dict[str, str]


class _Template(msgspec.Struct):
    metadata: _Metadata
    spec: _Pod


class _Workload(msgspec.Struct):
    """What of a Deployment's part is read again, and of which type."""

    template: _Template


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
