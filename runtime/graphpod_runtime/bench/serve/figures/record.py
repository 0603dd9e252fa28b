"""What one client saw of one request."""

from enum import StrEnum

import msgspec


class Outcome(StrEnum):
    """How a request ended. Every request ends exactly once."""

    Completed = "completed"
    Cancelled = "cancelled"
    """The client left, as the load asked."""
    Failed = "failed"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Times are seconds after the start of the load, on one clock for all drivers. `stamps` are the arrivals of
    pieces of the answer, a piece being an event with new tokens; several that came in one read have one time.
    """

    number: int
    """Of the conversation."""
    turn: int
    asked: int
    """Tokens of the answer that were asked for."""
    due: float
    """When the schedule wanted it sent; in a closed loop `sent`."""
    sent: float
    end: float
    """Of the whole stream; for a cancelled or failed request when the client gave up."""
    stamps: list[float] = []
    last: float = 0.0
    """The last event of the answer, which may carry only the reason why it ended."""
    outcome: Outcome = Outcome.Completed
    error: str = ""
    """The kind of a failure."""
    message: str = ""
    """What the server or the client's library said of it."""
    input_tokens: int | None = None
    """From the server's usage; None where it sent none."""
    output_tokens: int | None = None
    cached_tokens: int | None = None

    @property
    def tokens(self) -> int:
        """Of the answer: by the server's usage, else one a piece."""
        return len(self.stamps) if self.output_tokens is None else self.output_tokens

    @property
    def ttft(self) -> float | None:
        """From sending to the first piece. In an open loop from `due`, so that a late driver flatters no server."""
        return self.stamps[0] - min(self.due, self.sent) if self.stamps else None

    @property
    def gaps(self) -> list[float]:
        """Between pieces (ITL)."""
        return [later - earlier for earlier, later in zip(self.stamps, self.stamps[1:], strict=False)]

    @property
    def tpot(self) -> float | None:
        """Time a token after the first: last event - first piece, by tokens - 1."""
        return (self.last - self.stamps[0]) / (self.tokens - 1) if self.stamps and self.tokens > 1 else None

    @property
    def e2e(self) -> float:
        """From sending (or `due`) to the end of the stream."""
        return self.end - min(self.due, self.sent)

    @property
    def late(self) -> float:
        """By how much the driver missed the schedule."""
        return max(0.0, self.sent - self.due)
