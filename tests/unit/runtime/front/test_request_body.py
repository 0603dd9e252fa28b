"""The way in of one body: what is kept of it, for how long, and what is read of one that is refused."""

import asyncio
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import pytest

from graphpod_policy.http_limits import BODY_RATE, HttpLimits
from graphpod_runtime.front.request_body import BodyRoom, Interrupted, RequestBody
from graphpod_runtime.front.requests.errors import ApiError

LIMITS = HttpLimits(body_bytes=1 << 20, body_seconds=0.01)
PIECE = b"x" * 65536
GONE = {"type": "http.disconnect"}


class Client:
    """A client that sends these messages, and counts what is read of them."""

    def __init__(self, *messages: Any, then: Any = GONE) -> None:
        self._messages: Iterator[Any] = chain(messages, repeat(then))
        self.bytes = 0

    async def __call__(self) -> Any:
        message = next(self._messages)
        self.bytes += len(message.get("body", b""))
        return message


def piece(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def body_of(client: Client, room: BodyRoom | None = None, *headers: tuple[bytes, bytes]) -> RequestBody:
    return RequestBody({"headers": [(b"transfer-encoding", b"chunked"), *headers]}, client, room or BodyRoom(LIMITS))


def test_a_body_comes_whole_and_its_room_is_given_back_once_it_has_been_read() -> None:
    async def run() -> None:
        room = BodyRoom(LIMITS)
        incoming = body_of(Client(piece(b"ab"), piece(b"c", more=False)), room)
        assert await incoming.read() is None
        assert await incoming.receive() == piece(b"abc", more=False)
        assert room.held == 3
        assert await incoming.receive() == GONE
        assert room.held == 0
        incoming.release()
        assert room.held == 0

    asyncio.run(run())


def test_a_body_that_has_come_is_read_without_a_timer_and_within_the_same_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def read(size: int) -> int | None:
        scope = {"headers": [(b"content-length", b"%d" % size)]}
        incoming = RequestBody(scope, Client(piece(b"x" * size, more=False)), BodyRoom(LIMITS), has_come=True)
        refusal = await incoming.read()
        return refusal and refusal.status

    def no_timer(seconds: float) -> None:
        raise AssertionError(f"a timer of {seconds} s")

    monkeypatch.setattr(asyncio, "timeout", no_timer)
    assert [asyncio.run(read(size)) for size in (3, LIMITS.body_bytes + 1)] == [None, 413]


def test_a_body_beyond_a_limit_is_refused_and_given_back() -> None:
    async def run() -> None:
        room = BodyRoom(LIMITS)
        endless = body_of(Client(then=piece(PIECE)), room)
        refusal = await endless.read()
        assert refusal is not None
        assert (refusal.status, refusal.code) == (413, "request_too_large")
        assert room.held <= LIMITS.body_bytes + len(PIECE)
        endless.release()
        room.held = LIMITS.bodies_bytes
        refusal = await body_of(Client(piece(b"x")), room).read()
        assert refusal is not None
        assert (refusal.status, refusal.code) == (503, "bodies_full")

    asyncio.run(run())


def test_of_a_refused_body_a_bounded_part_is_read_and_nothing_kept() -> None:
    async def run() -> None:
        client, room = Client(then=piece(PIECE)), BodyRoom(LIMITS)
        endless = body_of(client, room)
        await endless.discard()
        assert (endless.complete, room.held) == (False, 0)
        assert LIMITS.discard_bytes <= client.bytes <= LIMITS.discard_bytes + len(PIECE)
        short = body_of(Client(piece(PIECE), piece(PIECE, more=False)))
        await short.discard()
        assert short.complete

    asyncio.run(run())


def test_a_client_that_waits_for_a_word_is_not_asked_for_a_body_that_is_refused() -> None:
    client = Client(then=piece(PIECE))
    incoming = body_of(client, None, (b"expect", b"100-continue"))
    asyncio.run(incoming.discard())
    assert (client.bytes, incoming.complete) == (0, False)


def test_a_body_that_stops_coming_is_given_up() -> None:
    async def never() -> Any:
        await asyncio.Event().wait()

    refusal = asyncio.run(RequestBody({"headers": [(b"content-length", b"5")]}, never, BodyRoom(LIMITS)).read())
    assert refusal is not None
    assert (refusal.status, refusal.message) == (
        408,
        "The body stopped or came too slowly, after 0 bytes. Send the request again, without a pause of 0.01 s and "
        "with at least 4096 bytes a second.",
    )


@pytest.mark.parametrize(
    ("count", "every", "pieces"),
    [
        (1, 0.5, 21),
        (1, 9.0, 2),
        (BODY_RATE, 2.0, 10),
        (BODY_RATE // 2, 1.0, 20),
        (BODY_RATE, 0.99, None),
        (BODY_RATE, 9.0, 2),
    ],
)
def test_a_body_that_is_trickled_is_given_up_when_its_time_is_over(
    count: int, every: float, pieces: int | None
) -> None:
    """No pause is as long as the limit of pauses."""
    limits, now, came = HttpLimits(body_bytes=1 << 20, body_seconds=10), 0.0, 0

    async def trickles() -> Any:
        nonlocal now, came
        now, came = now + every, came + 1
        return piece(b"x" * count, more=came < 200)

    async def run() -> ApiError | None:
        scope = {"headers": [(b"transfer-encoding", b"chunked")]}
        return await RequestBody(scope, trickles, BodyRoom(limits), clock=lambda: now).read()

    refusal = asyncio.run(run())
    assert came == (pieces or 200)
    assert (refusal and (refusal.status, refusal.code)) == (None if pieces is None else (408, "request_timeout"))
    if refusal is not None:
        assert f"after {came * count} bytes." in refusal.message


def test_a_client_that_goes_is_noticed() -> None:
    with pytest.raises(Interrupted):
        asyncio.run(body_of(Client(piece(b"x"))).read())
