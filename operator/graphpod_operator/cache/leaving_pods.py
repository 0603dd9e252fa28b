"""The pods of a service that are being deleted, as long as a new pod may wait for what they hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from graphpod_operator.cache.pod import Pod

SETTLE_SECONDS = 15.0
"""After a pod has gone: the scheduler tries a pod that did not fit again within 10 s, and says nothing until then."""
LATE_SECONDS = 60.0
"""After the end of a pod's grace period. One that exists even then does not go by itself: its node may be lost."""


@dataclass(slots=True)
class LeavingPods:
    """What is remembered of them from one look to the next. Times are seconds of a clock that only goes forward."""

    _there: dict[str, Pod] = field(default_factory=dict)
    """Those that drained at the last look, by uid."""
    _gone: dict[str, tuple[Pod, float]] = field(default_factory=dict)
    """Those that have gone since, and when that was seen."""

    def look(self, pods: Iterable[Pod], at: float, now: str) -> tuple[Pod, ...]:
        """The pods for whose room a new one may wait at the time `at`, which is `now` (RFC 3339): they drain, or they
        have just gone.
        """
        there = {pod.uid: pod for pod in pods}
        for uid, pod in self._there.items():
            if uid not in there or not there[uid].drains:
                self._gone[uid] = pod, at
        self._there = {uid: pod for uid, pod in there.items() if pod.drains}
        self._gone = {uid: one for uid, one in self._gone.items() if at - one[1] < SETTLE_SECONDS}
        return (*(pod for pod in self._there.values() if _left(pod, now) > 0), *(pod for pod, _ in self._gone.values()))

    def pause(self, at: float, now: str) -> float | None:
        """Seconds until the next of them does not count any more; None without one."""
        pauses = [_left(pod, now) for pod in self._there.values()]
        pauses += [SETTLE_SECONDS - (at - since) for _, since in self._gone.values()]
        return min((pause for pause in pauses if pause > 0), default=None)


def _left(pod: Pod, now: str) -> float:
    """Seconds until a pod that drains has taken too long."""
    if pod.goes_by is None:
        return 0.0
    return (pod.goes_by - datetime.fromisoformat(now)).total_seconds() + LATE_SECONDS
