"""What the engine sends for one group of requests, gathered between two looks.

A frame of the wire is one pass of the engine. All of its events are put before whoever waits is woken, so a connection
has one wake-up, one write and one event a choice for each pass, and for several passes when it is slower than they are.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from graphpod_runtime.wire.messages import Finished, Logprob, Tokens

MOST_WAITING = 4096
"""Tokens of one request that wait to be taken, each with the alternatives that its log-probability names."""


@dataclass(slots=True)
class Arrived:
    """What has come of one request: tokens in order with what Tokens says of them, and its end."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[Logprob] = field(default_factory=list)
    prompt_logprobs: list[Logprob] = field(default_factory=list)
    cached: int = 0
    """Prompt tokens that the prefix cache had."""
    vector: bytes = b""
    """The answer to a request for an embedding."""
    finished: Finished | None = None
    waiting: int = 0
    """Counts towards MOST_WAITING. Log-probabilities of a prompt have a limit of their own, at the door."""

    def add(self, event: Tokens | Finished) -> None:
        """One event more."""
        if isinstance(event, Finished):
            self.finished = event
            return
        self.ids += event.ids
        self.cached += event.cached
        self.vector = event.vector or self.vector
        self.waiting += len(event.ids)
        if event.logprobs:
            self.logprobs += event.logprobs
            self.waiting += sum(len(one.top) for one in event.logprobs)
        if event.prompt_logprobs:
            self.prompt_logprobs += event.prompt_logprobs


class EngineStream:
    """The events of a group of requests, by the request's index in the group."""

    def __init__(self, abort: Callable[[int], None], overrun: Callable[[], None]) -> None:
        """`overrun` is called when more than MOST_WAITING tokens of one request have come and were not taken."""
        self.abort = abort
        """Ends one request of the group, by index; only events that have come already may follow."""
        self._overrun = overrun
        self._arrived: dict[int, Arrived] = {}
        self._waiter: asyncio.Future[None] | None = None

    async def next(self) -> dict[int, Arrived]:
        """Everything that has come since the last call, as soon as there is something. Every request of the group ends
        with exactly one Finished.
        """
        if not self._arrived:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        arrived, self._arrived = self._arrived, {}
        return arrived

    def put(self, index: int, event: Tokens | Finished) -> None:
        """An event has come."""
        arrived = self._arrived.get(index)
        if arrived is None:
            arrived = self._arrived[index] = Arrived()
        arrived.add(event)
        if arrived.waiting > MOST_WAITING:
            self._overrun()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
