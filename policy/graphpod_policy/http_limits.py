"""What one HTTP request may take of a server: settings, each with its bounds, for the API and for the command line. And
the header by which operator and engine make sure of each other.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Setting:
    """A number and its bounds, both allowed."""

    default: int
    least: int
    most: int


BODY_BYTES = Setting(4 << 20, 64 << 10, 64 << 20)
"""Of one body. A prompt of 128k tokens takes 0.6 MB. The server holds up to 16 of them, so more would be gigabytes."""
HEADER_SECONDS = Setting(30, 1, 3600)
BODY_SECONDS = Setting(30, 1, 3600)
READ_SECONDS = Setting(60, 1, 3600)
BODY_RATE = 4 << 10
"""Bytes a second of a body that takes longer than its first seconds: less is a client that keeps others out of the
memory for bodies. A modem sends more. Apache's mod_reqtimeout (RequestReadTimeout) counts alike, with 500."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Those of one server."""

    body_bytes: int = BODY_BYTES.default
    """Of one request's body."""
    header_seconds: float = HEADER_SECONDS.default
    """A connection without a request: from its beginning, or from a request's first byte, to the end of the header."""
    body_seconds: float = BODY_SECONDS.default
    """A body that stops coming for so long is given up: its bytes count for the others. Also the first part of
    `body_time`."""
    read_seconds: float = READ_SECONDS.default
    """A client that reads nothing of its stream for so long, while there is something to read, is given up."""

    @property
    def bodies_bytes(self) -> int:
        """Of all bodies that are being read or parsed; who comes beyond that gets 503."""
        return 16 * self.body_bytes

    def body_time(self, count: int) -> float:
        """Seconds from its beginning in which a body of which `count` bytes have come must go on, or be complete."""
        return self.body_seconds + count / BODY_RATE

    @property
    def discard_bytes(self) -> int:
        """What is read of the body of a request that is refused. Most clients read no answer before they have sent all;
        one that sends more finds its connection closed.
        """
        return 4 * self.body_bytes

    @property
    def unread_seconds(self) -> float:
        """A client that reads nothing of an answer in one piece, which waits as a whole, loses its connection."""
        return 3 * self.read_seconds


DEFAULT_LIMITS = HttpLimits()
POD_UID_HEADER = "x-graphpod-pod-uid"
"""Of an order to an admin port: the uid of the pod that it is for. Addresses of pods pass on to others."""
