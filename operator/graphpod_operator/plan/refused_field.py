"""Which field of the spec an API server's refusal of a Deployment is about, or what else stands in the way. Pure."""

from __future__ import annotations

import re

from graphpod_operator.conditions.reasons import Reason

_TEMPLATE = r"spec\.(?:template|leaderWorkerTemplate\.(?:leader|worker)Template)\."
_POD = _TEMPLATE + r"spec\."
_FIELDS: tuple[tuple[str, str], ...] = (
    (_TEMPLATE + r"(annotations|labels|metadata)", "spec.podTemplate"),
    (_POD + r"(volumes|containers\[[^]]*\]\.(env|volumeMounts))", "spec.podTemplate"),
    (_POD + r"containers\[[^]]*\]\.resources", "spec.resources"),
    (_POD + r"affinity", "spec.placement.affinity"),
    (_POD + r"nodeSelector", "spec.placement.nodeSelector"),
    (_POD + r"tolerations", "spec.placement.tolerations"),
    (_POD + r"topologySpreadConstraints", "spec.placement.topologySpread"),
    (_POD + r"priorityClassName", "spec.placement.priorityClassName"),
    (_POD + r"runtimeClassName", "spec.placement.runtimeClassName"),
    (_POD + r"schedulerName", "spec.placement.schedulerName"),
)
"""Parts of a Deployment that a user writes as the API server names them, and the field that they come from."""

_OLD_CRD = re.compile(
    r"Kind=LeaderWorkerSet\):\s*(?:errors:\s*)?\.(spec\.(?!leaderWorkerTemplate\.(?:leader|worker)Template)\S+): "
    r"field not declared in schema"
)
"""How the API server says that the CRD of LeaderWorkerSet has no such field."""
_KUEUE = re.compile(
    r'webhook "v(?:deployment|leaderworkerset)\.kb\.io" denied the request: \[?'
    r"(metadata\.labels\[kueue\.x-k8s\.io/queue-name\]"
    r"|spec\.leaderWorkerTemplate\.(?:size|(?:leader|worker)Template\.spec)[^:]*): "
)
"""How Kueue refuses to change what is in a queue. LeaderWorkerSet's own webhook of that name refuses other fields."""
_QUEUED = (
    (r"metadata", "the label kueue.x-k8s.io/queue-name"),
    (r"spec\.leaderWorkerTemplate\.size", "spec.parallelism.nodes"),
    (_POD + r"containers\[[^]]*\]\.ports", "the ports"),
)
"""What Kueue holds besides, and what it comes from."""
_OBJECT = re.compile(r"/(deployments|leaderworkersets)/([a-z0-9-]+)")
"""What a request is about, in its path."""


def held(message: str) -> tuple[Reason, str] | None:
    """The reason and what is wrong, where the cluster's own parts are in the way of a spec that is right; else None."""
    if (match := _OLD_CRD.search(message)) is not None:
        return Reason.LeaderWorkerSetOutdated, f"the CRD of LeaderWorkerSet in this cluster has no field {match[1]}"
    if (match := _KUEUE.search(message)) is None:
        return None
    path = match[1]
    field = next((name for words, name in (*_QUEUED, *_FIELDS) if re.match(words, path)), path)
    what = f"Kueue refuses a change of {field}"
    if (named := _OBJECT.search(message)) is None:
        return Reason.KueueRefused, what
    kind, name = named.groups()
    delete = f"kubectl -n NAMESPACE delete {kind} {name}"
    return (
        Reason.KueueRefused,
        f"{what} while {name} is in a queue; undo it, or end its pods, and new ones come: {delete}",
    )


def blamed(message: str) -> tuple[Reason, str] | None:
    """The reason and what is wrong, where the refusal names a part that only the spec can get wrong; else None.

    Of several parts the first that the server names counts.
    """
    if held(message) is not None:
        return None
    found = [(match, field) for words, field in _FIELDS if (match := re.search(words, message)) is not None]
    if not found:
        return None
    match, field = min(found, key=lambda one: one[0].start())
    if field == "spec.podTemplate":
        return Reason.PodTemplateInvalid, message
    return Reason.SpecInvalid, field + message[match.end() :]
