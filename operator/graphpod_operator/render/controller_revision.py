"""The ControllerRevision that keeps a rendering: what was made once is applied again, and never rendered anew."""

from __future__ import annotations

from collections.abc import Mapping

from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.subject import Body, Subject


def controller_revision(subject: Subject, revision: str, data: Mapping[str, str], number: int) -> Body:
    """The memory of one rendering. `data` never changes; the highest `number` is the rendering in use."""
    return subject.child(
        Resource.ControllerRevision,
        subject.revision_name(revision),
        data=dict(data),
        revision=number,
    )
