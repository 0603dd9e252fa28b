"""What the API server refused for a fault of the spec: the same body is not sent again until some minutes have passed.

Each look at a service would send it otherwise, and a service is looked at whenever one of its pods changes.
"""

from __future__ import annotations

from typing import NamedTuple

from graphpod_operator.cache.key import Key
from graphpod_operator.kube.port import ServerRefused
from graphpod_operator.plan.desired import DesiredChild

AGAIN_SECONDS = 300.0
"""After which it is sent again: another version of the API server, or another admission rule, may take it."""


class _Sent(NamedTuple):
    owned: str
    status: int
    message: str
    until: float


class RefusedBodies:
    """The body that was refused last, by service. Times are seconds of a clock that only goes forward."""

    def __init__(self) -> None:
        self._sent: dict[Key, _Sent] = {}

    def check(self, key: Key, wanted: DesiredChild, now: float) -> None:
        """Raise what the server said, if this very body was refused lately."""
        sent = self._sent.get(key)
        if sent is not None and sent.owned == wanted.owned and now < sent.until:
            raise ServerRefused(sent.status, sent.message)

    def note(self, key: Key, wanted: DesiredChild, error: ServerRefused, now: float) -> None:
        """The server refused this body."""
        self._sent[key] = _Sent(wanted.owned, error.status, str(error), now + AGAIN_SECONDS)

    def again(self, key: Key, now: float) -> float | None:
        """Seconds until the refused body of a service may be sent again; None without one."""
        return max(0.0, self._sent[key].until - now) if key in self._sent else None

    def forget(self, key: Key) -> None:
        """The service is gone, or all its objects are in order."""
        self._sent.pop(key, None)
