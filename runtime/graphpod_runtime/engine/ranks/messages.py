"""What the first rank orders the others to do, and what they report: integers and words, as msgspec writes them."""

import logging
from collections.abc import Sequence

import msgspec

from graphpod_runtime.engine.ranks.pass_answers import PassAnswer
from graphpod_runtime.wire.messages import UNREADABLE, Fatal, Heartbeat, Pooling

log = logging.getLogger("graphpod.engine")


class Row(msgspec.Struct, frozen=True, array_like=True):
    """A sequence of a pass, which runs its tokens [start, end)."""

    number: int
    """Its name between ranks."""
    start: int
    end: int
    known: int
    """Of its tokens and"""
    kept: int
    """of its pages so many are known; behind them come"""
    losses: int
    """(as `Sequence.page_losses`)"""
    tokens: list[int]
    pages: list[int]
    prompt_len: int
    unscored: int
    """As `Sequence.unscored`."""
    pooling: Pooling | None
    """Of a request for an embedding,"""
    pooled: int
    """of which so many tokens are pooled: `Pooled.known`."""


class Drafts(msgspec.Struct, frozen=True, array_like=True):
    """Of a pass over drafts, as `DraftBatch` has them."""

    widths: list[int]
    rooms: list[int]


class Launch(msgspec.Struct, frozen=True, tag=True):
    """A pass is launched."""

    decode: bool
    rows: list[Row]
    unclean: list[int]
    """Pages to zero before it."""
    unclean_drafts: list[int]
    """Likewise, of the cache of a head."""
    given: list[int] | None
    """As `Runner.launch` has it."""
    forgotten: list[int]
    """Numbers that may be given to others."""
    drafts: Drafts | None = None
    answer: PassAnswer = PassAnswer.Nothing
    """Of the last stage of a pipeline."""


class Choose(msgspec.Struct, frozen=True, tag=True):
    """The tokens of the first pass without are chosen: an order to ranks that keep the first one's tokens."""


class Land(msgspec.Struct, frozen=True, tag=True):
    """The pass that was launched first, of those in flight, lands."""


class Store(msgspec.Struct, frozen=True, tag=True):
    """Pages are copied to slots of the host pool."""

    number: int
    """Of copies in both directions."""
    slots: list[int]
    pages: list[int]


class Load(msgspec.Struct, frozen=True, tag=True):
    """Slots are copied to pages."""

    number: int
    slots: list[int]
    pages: list[int]


class AwaitCopies(msgspec.Struct, frozen=True, tag=True):
    """What is launched from now on runs behind all copies."""


class Rouse(msgspec.Struct, frozen=True, tag=True):
    """A pass may be launched soon: a rank that sleeps wakes up while it is planned, and rehearses."""


class Leave(msgspec.Struct, frozen=True, tag=True):
    """Nothing more comes."""


Order = Launch | Choose | Land | Store | Load | AwaitCopies | Rouse | Leave


class Beat(msgspec.Struct, frozen=True, tag=True):
    """A rank is alive, and got on last as `heart` says."""

    rank: int
    heart: Heartbeat
    waits_for: str = ""
    """What of another rank it waits for; empty: nothing that is known."""
    host_slots: int = 0
    """Pages that its host pool has room for,"""
    failed_allocations: int = 0
    """and parts of it that could not be allocated."""


class Copied(msgspec.Struct, frozen=True, tag=True):
    """A copy of the host tier was launched."""

    rank: int
    number: int
    failed: str = ""
    """Why it was not; empty: it was."""
    stored: int = 0
    """Bytes that this rank has copied so far to the host,"""
    loaded: int = 0
    """and back."""


class LastWords(msgspec.Struct, frozen=True, tag=True):
    """Why a rank ends."""

    rank: int
    fatal: Fatal
    witness: bool = False
    """Whether another rank may be the cause, one that could not say so."""


Notice = Beat | Copied | LastWords

_encoder = msgspec.msgpack.Encoder()
_orders = msgspec.msgpack.Decoder(Order)
_notices = msgspec.msgpack.Decoder(Notice)


def encode(message: Order | Notice) -> bytes:
    return _encoder.encode(message)


def decode_order(frame: bytes) -> Order:
    return _orders.decode(frame)


def decode_notices(frames: Sequence[bytes]) -> list[Notice]:
    """Those of `frames`, but for what is none: where ranks are on several machines a stranger may send anything."""
    found: list[Notice] = []
    for frame in frames:
        try:
            found.append(_notices.decode(frame))
        except UNREADABLE as error:
            log.warning("what came by the port of notices is none: %s", error)
    return found
