"""Why an optional kind is absent, as a reason and a message: plans leave it out, and status reports it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.kube.resources import Resource


class Absence(NamedTuple):
    """Why a kind is not there: KindNotServed, KindNotGranted or KindNotListed, and the same in words."""

    reason: Reason
    what: str


Absent = Mapping[Resource, Absence]
"""The optional kinds that are not there."""


def exists(kind: Resource, absent: Absent) -> bool:
    """Whether the cluster has objects of this kind, as far as the operator knows: also of one that cannot be listed."""
    return kind not in absent or absent[kind].reason is Reason.KindNotListed


def not_served(kind: Resource) -> Absence:
    """Its CRD is not installed."""
    return Absence(Reason.KindNotServed, f"{_named(kind)} is not served by this cluster")


def left_alone(kind: Resource) -> Absence:
    """Whoever installed the operator keeps it from this kind."""
    return Absence(Reason.KindNotGranted, f"{_named(kind)}: the operator is configured not to use this kind")


def refused(kind: Resource, message: str) -> Absence:
    """RBAC keeps the operator from it; the message is the server's."""
    return Absence(Reason.KindNotGranted, f"{_named(kind)} is served, but not to the operator: {message}")


def not_listed(kind: Resource, message: str) -> Absence:
    """A conversion webhook or the kind's own API server fails; the message is the server's."""
    return Absence(Reason.KindNotListed, f"{kind.kind} cannot be listed: {message}")


def _named(kind: Resource) -> str:
    return f"{kind.kind} ({kind.api_version})"
