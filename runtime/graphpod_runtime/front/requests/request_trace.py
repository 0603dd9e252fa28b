"""What is noted of a traced HTTP request while it is answered; `front/tracing` makes spans of it.

The trace of the request that a task works on is CURRENT, so nothing on the way from the HTTP server to the engine
carries it. Without tracing CURRENT has no value, and nothing is noted.
"""

import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

from msgspec.structs import replace

from graphpod_runtime.wire.messages import Finished, FinishReason, Phases, Submit, Tokens

MOST_CHOICES = 16
"""Choices of one request that have spans of their own."""


@dataclass(slots=True)
class ChoiceTrace:
    """One request to the engine. Times are time.monotonic()."""

    prompt_tokens: int
    tokens: int = 0
    """Generated, with the one that stopped it."""
    cached: int = 0
    phases: Phases | None = None
    """None: it has no token."""
    decoded: tuple[int, int] | None = None
    """Decode passes, on a graph and eagerly; None where it did not end by itself."""
    ended: float = 0.0


@dataclass(slots=True)
class RequestTrace:
    """One HTTP request."""

    choices: list[ChoiceTrace] = field(default_factory=list)
    finishes: list[FinishReason] = field(default_factory=list)
    over: bool = False
    """Its answer has ended: what goes on in the background is not part of it."""


CURRENT: ContextVar[RequestTrace | None] = ContextVar("graphpod-request-trace", default=None)


class EngineTraces:
    """Watches the requests of an engine (`OpenRequests.watch`). `clock` gives time.monotonic()."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[str, ChoiceTrace] = {}

    def submitted(self, submit: Submit) -> Submit:
        """What is sent in its place."""
        trace = CURRENT.get()
        if trace is None or trace.over or len(trace.choices) >= MOST_CHOICES:
            return submit
        choice = self._open[submit.id] = ChoiceTrace(len(submit.prompt))
        trace.choices.append(choice)
        return replace(submit, traced=True)

    def came(self, event: Tokens | Finished) -> None:
        """An event of the engine."""
        choice = self._open.get(event.id)
        if choice is None:
            return
        if isinstance(event, Tokens):
            choice.tokens += len(event.ids)
            choice.cached += event.cached
            choice.phases = choice.phases or event.phases
            return
        choice.tokens += event.reason is FinishReason.Stop
        choice.decoded = event.decoded
        self.left(event.id)

    def left(self, id: str) -> None:
        """A request has ended, or its client has gone."""
        choice = self._open.pop(id, None)
        if choice is not None:
            choice.ended = self._clock()
