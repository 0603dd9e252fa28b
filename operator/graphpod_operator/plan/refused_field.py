"""Which field of the spec an API server's refusal of a Deployment is about. Pure."""

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
)
"""Parts of a Deployment that a user writes as the API server names them, and the field that they come from."""


def blamed(message: str) -> tuple[Reason, str] | None:
    """The reason and what is wrong, where the refusal names a part that only the spec can get wrong; else None.

    Of several parts the first that the server names counts.
    """
    found = [(match, field) for words, field in _FIELDS if (match := re.search(words, message)) is not None]
    if not found:
        return None
    match, field = min(found, key=lambda one: one[0].start())
    if field == "spec.podTemplate":
        return Reason.PodTemplateInvalid, message
    return Reason.SpecInvalid, field + message[match.end() :]
