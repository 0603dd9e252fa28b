"""Why the cluster creates no pods: from the ReplicaSet controller's words to one of our reasons. Pure."""

from __future__ import annotations

import re

from graphpod_operator.conditions.reasons import Reason

BY_WORDS: tuple[tuple[str, Reason], ...] = (
    (r"exceeded quota|failed quota", Reason.QuotaExceeded),
    (r"no PriorityClass with name|RuntimeClass \S+ not found", Reason.PlacementRefused),
    (r"violates PodSecurity", Reason.PodSecurityRefused),
    (r"(maximum|minimum) \S+ usage per |max limit to request ratio", Reason.LimitRangeExceeded),
    (r"admission webhook .* denied", Reason.AdmissionRefused),
)
"""The words of the API server's admission; the first that are found decide."""

NO_PODS = frozenset((Reason.PodsRefused, *(reason for _, reason in BY_WORDS)))
"""The reasons for which there is no pod to look at."""

_OPENING = re.compile(r'^pods "[^"]*" is forbidden: ')
"""It names a pod that never was, another one at each try."""


def refusal(message: str) -> tuple[Reason, str]:
    """The reason, and what happened in words that stay the same from one try to the next."""
    reason = next((reason for words, reason in BY_WORDS if re.search(words, message)), Reason.PodsRefused)
    return reason, _OPENING.sub("", message)
