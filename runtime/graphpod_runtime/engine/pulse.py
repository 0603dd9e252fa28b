"""The last progress of a process."""

import threading
import time
from collections.abc import Callable

from graphpod_runtime.wire.messages import Heartbeat

BEAT_SECONDS = 1.0


class Pulse:
    """The last progress, written by the working thread and sent by the heart's."""

    def __init__(self) -> None:
        self._latest = (time.monotonic(), "Import")
        self._changed = threading.Event()
        self.waits_for: Callable[[], str] = str
        """What of another rank this one waits for; empty: nothing that is known."""
        self.host_pool: Callable[[], tuple[int, int]] = lambda: (0, 0)
        """Slots of the host tier's pool, and parts of it that could not be allocated."""

    def beat(self, stage: str) -> None:
        """Progress was made at `stage`."""
        changed = stage != self._latest[1]
        self._latest = (time.monotonic(), stage)
        if changed:
            self._changed.set()

    def wait(self) -> None:
        """Until the next heartbeat is due: after BEAT_SECONDS, or at once where the stage has changed."""
        if self._changed.wait(BEAT_SECONDS):
            self._changed.clear()

    def heartbeat(self) -> Heartbeat:
        """What to send now."""
        return Heartbeat(*self._latest)
