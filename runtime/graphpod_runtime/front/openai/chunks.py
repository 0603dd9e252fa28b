"""What a stream carries, as bytes of server-sent events: the interface that every API fills, and the chunks of chat and
completions.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import msgspec

from graphpod_runtime.front.requests.errors import ApiError
from graphpod_runtime.front.requests.generation import Piece

Encode = Callable[[Piece], Sequence[msgspec.Struct]]
"""The events of a piece; none for a piece that brings nothing yet. A piece of mere text has one."""

_encoder = msgspec.json.Encoder()

MARK = "\ue000text\ue000"
_MARK = _encoder.encode(MARK)
"""Where the text of an event stands; no model's name holds it."""
DONE = b"data: [DONE]\n\n"


class Events(Protocol):
    """The events of one answer. A stream calls `begin` once its request is admitted, `pieces` for what came together,
    and at last either `end` or `failed`.
    """

    def begin(self) -> bytes:
        """What goes out before the first token; may be empty."""

    def pieces(self, together: list[Piece]) -> bytes:
        """The events of pieces that came together."""

    def end(self) -> bytes:
        """The last events of an answer that is complete."""

    def failed(self, error: ApiError) -> bytes:
        """The last events of one that is not: its status line has gone out."""


class Chunks:
    """`head` with the first piece, the events of each piece, `tail` (made when all has ended), `[DONE]`. `varies`:
    events of one choice differ in more than their text.
    """

    def __init__(
        self, encode: Encode, head: list[msgspec.Struct], tail: Callable[[], list[Any]], *, varies: bool = False
    ) -> None:
        self._encode, self._head, self._tail, self._varies = encode, head, tail, varies
        self._around: dict[int, tuple[bytes, bytes]] = {}
        """By choice, an event before and after its text: all else in it stays the same until the choice ends."""

    def begin(self) -> bytes:
        """Nothing: the first event has the first token's time, which clients measure."""
        return b""

    def pieces(self, together: list[Piece]) -> bytes:
        """The events of each piece."""
        head, self._head = _events(self._head), []
        return head + b"".join(map(self._event_of, together))

    def end(self) -> bytes:
        """The tail, and the mark of a complete stream."""
        return _events(self._tail()) + DONE

    def failed(self, error: ApiError) -> bytes:
        """An error event; no [DONE] follows it."""
        return event(error.encoded())

    def _event_of(self, piece: Piece) -> bytes:
        if piece.finish is not None or piece.said or self._varies:
            return _events(self._encode(piece))
        around = self._around.get(piece.index)
        if around is None:
            head, _, tail = _events(self._encode(Piece(piece.index, MARK))).partition(_MARK)
            around = self._around[piece.index] = head, tail
        return around[0] + _encoder.encode(piece.text) + around[1]


def event(data: bytes, name: bytes = b"") -> bytes:
    """One server-sent event of JSON text, with a name where its API has names."""
    return b"event: " + name + b"\ndata: " + data + b"\n\n" if name else b"data: " + data + b"\n\n"


def _events(items: Iterable[msgspec.Struct]) -> bytes:
    return b"".join(event(_encoder.encode(item)) for item in items)
