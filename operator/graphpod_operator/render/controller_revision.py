"""The ControllerRevision that keeps a rendering: what was rendered once is applied again, and never rendered a second
time."""

from __future__ import annotations

from collections.abc import Mapping

from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.owner import Body, Owner


def controller_revision(owner: Owner, revision: str, data: Mapping[str, str], number: int) -> Body:
    """The memory of one rendering. `data` never changes; the highest `number` is the rendering in use."""
    return owner.child(
        Resource.ControllerRevision,
        owner.revision_name(revision),
        data=dict(data),
        revision=number,
    )
