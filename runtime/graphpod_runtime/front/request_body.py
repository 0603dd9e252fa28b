"""One request's body on its way in: read whole within the limits of one body and of all, or read past."""

import asyncio

from starlette.types import Message, Receive, Scope

from graphpod_runtime.front.requests.errors import ApiError, too_large, unavailable

BODY_LIMIT = 4 << 20
"""Bytes. A prompt of 128k tokens takes 0.6 MB."""
BODIES_LIMIT = 16 * BODY_LIMIT
"""Bytes of all bodies that are being read or parsed; who comes beyond that gets 503."""
BODIES_FULL = f"Open requests hold {BODIES_LIMIT >> 20} MiB of prompts. Send the request again."
BODY_SECONDS = 30.0
"""A body that stops coming for so long is given up: its bytes count for the others."""
DISCARD_LIMIT, DISCARD_SECONDS = 4 * BODY_LIMIT, 10.0
"""What is read of the body of a request that is refused. Most clients read no answer before they have sent all; one
that sends more than this finds its connection closed.
"""


class Interrupted(Exception):
    """The client closed the connection before its body was complete."""


class HeldBytes:
    """The bytes of bodies that are held, of all requests together."""

    held = 0


class RequestBody:
    """The body of one request. `receive` is ASGI's, for the application: the body in one message, then what comes after
    it.
    """

    def __init__(self, scope: Scope, receive: Receive, room: HeldBytes) -> None:
        headers = {name for name, _ in scope["headers"]}
        self.complete = headers.isdisjoint((b"content-length", b"transfer-encoding"))
        """Whether the client has sent all of it."""
        self._receive, self._room = receive, room
        self._parts: list[bytes] = []
        self._held = 0
        self._expects = b"expect" in headers
        """The client waits for a word (100 Continue) before it sends its body; asking for the body gives it."""
        self._given = False

    async def read(self) -> ApiError | None:
        """Reads all of it; 408, 413 or 503 where that would take too much time or memory. Raises Interrupted."""
        while not self.complete:
            try:
                part = await asyncio.wait_for(self._next(), BODY_SECONDS)
            except TimeoutError:
                message = f"The body did not continue for {BODY_SECONDS:.0f} s; send the request again."
                return ApiError(408, message, code="request_timeout")
            self._held += len(part)
            self._room.held += len(part)
            if self._held > BODY_LIMIT:
                return too_large(BODY_LIMIT)
            if self._room.held > BODIES_LIMIT:
                return unavailable(BODIES_FULL, "bodies_full")
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
                while not self.complete and read < DISCARD_LIMIT:
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
