"""One log line for each refused request (4xx and 5xx): id, method, path, status and code; never a prompt or a key.

Clients that are refused often retry at once. So the lines of one second are bounded, and the next line counts those
that were left out.
"""

import logging
import time
from collections.abc import Callable
from urllib.parse import quote

log = logging.getLogger("graphpod.front")

LINES_A_SECOND = 20
PATH_SHOWN = 200
"""Characters of a path, which a client chooses; line breaks are escaped."""

CODE = "graphpod.refusal_code"
"""Where the application leaves its refusal's code in a request's scope."""


class RefusalLog:
    """Writes the lines of one server. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._second = 0
        self._lines = self._left_out = 0

    def line(self, id: str, method: str, path: str, status: int, code: str | None) -> None:
        """Logs one refused request at INFO, or counts it."""
        second = int(self._clock())
        if second != self._second:
            self._second, self._lines = second, 0
        if self._lines >= LINES_A_SECOND:
            self._left_out += 1
            return
        self._lines += 1
        left_out = f" not_logged_before={self._left_out}" if self._left_out else ""
        self._left_out = 0
        shown = quote(path[:PATH_SHOWN])[:PATH_SHOWN]
        log.info("refused: id=%s method=%s path=%s status=%d code=%s%s", id, method, shown, status, code, left_out)


REFUSALS = RefusalLog()
"""Of this process."""
