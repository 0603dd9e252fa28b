"""The open requests of one engine, and where its events go. How commands reach the engine, a subclass says."""

import asyncio
import contextlib
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import ParamSpec, Protocol, TypeVar

from graphpod_runtime.front.requests.engine_stream import EngineStream
from graphpod_runtime.wire.messages import Abort, Command, Finished, FinishReason, Submit, Tokens

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Watch(Protocol):
    """Who looks at requests on their way to the engine, and at what comes back."""

    def submitted(self, submit: Submit) -> Submit: ...
    def came(self, event: Tokens | Finished) -> None: ...
    def left(self, id: str) -> None: ...


class OpenRequests(ABC):
    """Requests by id. It belongs to one thread."""

    def __init__(self) -> None:
        self._streams: dict[str, tuple[EngineStream, int]] = {}
        self._numbers = itertools.count()
        self._quiet_since = 0.0
        """When the latest request has ended, by time.monotonic()."""
        self._closed: str | None = None
        """Why no request is taken any more."""
        self.watch: Watch | None = None

    @abstractmethod
    def _send(self, commands: list[Command]) -> None:
        """Puts commands on their way to the engine."""

    @property
    def open(self) -> int:
        """Requests that have not ended."""
        return len(self._streams)

    @contextlib.contextmanager
    def submit(
        self, requests: Sequence[Callable[[str], Submit]], overrun: Callable[[], None] = lambda: None
    ) -> Iterator[EngineStream]:
        """Opens a group of requests, each made from its id; what has not ended on leaving is aborted. After
        `fail_all` requests end at once: one may have been with the tokenizer at that moment. `overrun` goes to the
        stream.
        """
        ids = [f"r{next(self._numbers)}" for _ in requests]
        stream = self._stream(lambda index: self._abort(ids[index]), overrun)
        try:
            for index, (id, request) in enumerate(zip(ids, requests, strict=True)):
                if self._closed is not None:
                    stream.put(index, Finished(id, FinishReason.Error, self._closed))
                    continue
                self._streams[id] = (stream, index)
                submit = request(id)
                self._send([submit if self.watch is None else self.watch.submitted(submit)])
            yield stream
        finally:
            for id in ids:
                self._abort(id)
            self._quiet_since = time.monotonic()

    def abort_all(self, message: str) -> None:
        """Ends every request, open or to come, with an error and frees it in the engine."""
        ids = list(self._streams)
        self.fail_all(message)
        self._send([Abort(id) for id in ids])

    def fail_all(self, message: str) -> None:
        """Ends every request, open or to come, with an error, here only."""
        self._closed = message
        for id, (stream, index) in list(self._streams.items()):
            if self.watch is not None:
                self.watch.left(id)
            stream.put(index, Finished(id, FinishReason.Error, message))
        self._streams.clear()

    async def off_loop(
        self, work: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        """Long `work` of one request, in a thread, so that other requests go on meanwhile."""
        return await asyncio.to_thread(work, *arguments, **named)

    def _stream(self, abort: Callable[[int], None], overrun: Callable[[], None]) -> EngineStream:
        return EngineStream(abort, overrun)

    def _arrived(self, event: Tokens | Finished) -> None:
        """Passes an event on to whom it belongs. One of an aborted request may still have been on its way."""
        ends = isinstance(event, Finished)
        found = self._streams.pop(event.id, None) if ends else self._streams.get(event.id)
        if self.watch is not None:
            self.watch.came(event)
        if found is not None:
            found[0].put(found[1], event)

    def _abort(self, id: str) -> None:
        if self._streams.pop(id, None) is not None:
            if self.watch is not None:
                self.watch.left(id)
            self._send([Abort(id)])
