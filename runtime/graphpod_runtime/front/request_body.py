"""One request's body on its way in: read whole within the limits of one body and of all, or read past."""

import asyncio
import time
from collections.abc import Callable

from starlette.types import Message, Receive, Scope

from graphpod_policy.http_limits import BODY_RATE, HttpLimits
from graphpod_runtime.front.requests.errors import ApiError, too_large, unavailable

DISCARD_SECONDS = 10.0
"""In which the body of a request that is refused is read past."""


class Interrupted(Exception):
    """The client closed the connection before its body was complete."""


class BodyRoom:
    """The bytes of bodies that are held, of all requests together, and the limits of each."""

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self.held = 0


class RequestBody:
    """The body of one request. `receive` is ASGI's, for the application: the body in one message, then what comes after
    it.
    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        room: BodyRoom,
        *,
        has_come: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`has_come`: the server has read all of it."""
        headers = {name for name, _ in scope["headers"]}
        self.complete = headers.isdisjoint((b"content-length", b"transfer-encoding"))
        """Whether the client has sent all of it."""
        self._receive, self._room, self._has_come, self._clock = receive, room, has_come, clock
        self._parts: list[bytes] = []
        self._held = 0
        self._expects = b"expect" in headers
        """The client waits for a word (100 Continue) before it sends its body; asking for the body gives it."""
        self._given = False

    async def read(self) -> ApiError | None:
        """Reads all of it; 408, 413 or 503 where that would take too much time or memory. Raises Interrupted."""
        limits, began = self._room.limits, self._clock()
        while not self.complete:
            left = limits.body_time(self._held) - (self._clock() - began)
            try:
                if self._has_come:
                    part = await self._next()  # without a timer, which takes longer than to read
                elif left <= 0:
                    raise TimeoutError
                else:
                    async with asyncio.timeout(min(limits.body_seconds, left)):
                        part = await self._next()
            except TimeoutError:
                message = (
                    f"The body stopped or came too slowly, after {self._held} bytes. Send the request again, "
                    f"without a pause of {limits.body_seconds:g} s and with at least {BODY_RATE} bytes a second."
                )
                return ApiError(408, message, code="request_timeout")
            self._held += len(part)
            self._room.held += len(part)
            if self._held > limits.body_bytes:
                return too_large(limits.body_bytes)
            if self._room.held > limits.bodies_bytes:
                message = f"Open requests hold {limits.bodies_bytes} bytes of prompts. Send the request again."
                return unavailable(message, "bodies_full")
            self._parts.append(part)
        return None

    async def discard(self) -> None:
        """Reads past what is left, up to a limit, and keeps none of it. Raises Interrupted."""
        self.release()
        if self._expects:
            return
        read = 0
        try:
            async with asyncio.timeout(DISCARD_SECONDS):
                while not self.complete and read < self._room.limits.discard_bytes:
                    read += len(await self._next())
        except TimeoutError:
            return

    async def receive(self) -> Message:
        """The whole body once; after it whatever the server says. Asking again gives the body's room to others: who
        waits for the client to go has parsed it.
        """
        if not self._given:
            self._given, body = True, b"".join(self._parts)
            self._parts = []
            return {"type": "http.request", "body": body, "more_body": False}
        self.release()
        return await self._receive()

    def release(self) -> None:
        """The body is not needed any more."""
        self._room.held -= self._held
        self._held, self._parts = 0, []

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Interrupted
        self.complete = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part
