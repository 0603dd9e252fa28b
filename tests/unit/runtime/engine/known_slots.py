"""A scheduler over pages whose content is known: what each slot of the device and of the host really holds."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from graphpod_runtime.cache.host_tier import CopyFailed, HostTier, LoadCosts
from graphpod_runtime.cache.moves import Stored
from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.engine.pass_copies import join
from graphpod_runtime.engine.schedule.batch import Batch, DecodeBatch
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.engine.schedule.yielded import Yielded
from graphpod_runtime.wire.messages import FinishReason

END = 0
SIZE = 4
LIMITS = Limits(max_model_len=40, max_batch=4, prefill_chunk=8, page_size=SIZE, max_queue=4, prefix_cache=True)


class Engine:
    """A scheduler, and a device that runs what it is given in its order; with `ahead` a pass is planned before the one
    before it has landed.
    """

    def __init__(
        self,
        pages: int,
        limits: Limits = LIMITS,
        *,
        ahead: bool = False,
        slots: int = 0,
        failing: int = 0,
        turn_pages: int = 1000,
    ) -> None:
        """With `slots` of a host tier, of whose copies one in `failing` fails. A turn launches `turn_pages` of each
        direction while others decode; it takes a second.
        """
        self.allocator = PageAllocator(pages + 1)
        self.copies = SlotCopies(slots, failing)
        tier = None
        if slots:
            tier = HostTier(self.copies, LoadCosts(0, 0, 1), SIZE, turn_pages, lambda: self.copies.turn)
        self.scheduler = Scheduler(self.allocator, limits, (END,), tier)
        self.kv = self.scheduler.kv
        self.live: dict[str, Sequence] = {}
        self.computed = 0
        """Rows of all passes."""
        self._ahead = ahead
        self._flight: PassInFlight | None = None
        self._text: dict[int, list[int]] = {}
        """The tokens of each sequence as the device has them, by identity."""
        self._slots = self.copies.device
        """What each slot holds: all tokens up to there, as keys and values depend on them."""
        self._open: list[Sequence] = []

    def submit(self, id: str, prompt: list[int], max_tokens: int, **more: Any) -> Sequence:
        sequence = Sequence(id, list(prompt), len(prompt), max_tokens, **more)
        self.scheduler.submit(sequence)
        self.live[id] = sequence
        self._open.append(sequence)  # identities stay
        self._text[id_of(sequence)] = list(prompt)
        return sequence

    def abort(self, id: str) -> None:
        del self.live[id]
        assert self.scheduler.abort(id)
        self.check()

    def step(self, token: Any = lambda _: 9) -> dict[str, FinishReason]:
        """Launches a pass and lands one; what ended."""
        before, self._flight = self._flight, self._launched(token)
        if not self._ahead:
            before, self._flight = self._flight, None
        return self._land(before)

    def run(self) -> dict[str, FinishReason]:
        """Passes until nothing is open."""
        ended: dict[str, FinishReason] = {}
        for _ in range(3000):
            if not self.scheduler.busy and self._flight is None:
                return ended
            ended |= self.step()
        raise AssertionError("the scheduler does not advance")

    def check(self) -> None:
        """Every page has one owner."""
        own = [page for holding in self.kv._held.values() for page in holding.own]
        assert len(own) == len(set(own))
        assert len(own) + self.kv.tree.size + self.allocator.available == self.allocator.capacity
        assert self.scheduler.running + len(self.scheduler._leaving) >= len(self.kv._held) >= self.scheduler.running
        assert 0 <= self.scheduler.usage <= 1

    def _launched(self, token: Any) -> "PassInFlight | None":
        self.copies.turn += 1
        self.copies.moved = {"store": [], "load": []}
        batch = self.scheduler.next()
        if batch is None:
            waits = self.kv.loading or any(one.awaits for one in self.scheduler._prompts.under_way)
            assert self._flight is not None or not self.scheduler.busy or waits
            return None
        self._join(batch)
        if isinstance(batch, DecodeBatch):
            rows = [(one, end - 1, end, True) for one, end in zip(batch.sequences, batch.ends, strict=True)]
        else:
            rows = [(chunk.sequence, chunk.start, chunk.end, chunk.last) for chunk in batch.chunks]
        flight = PassInFlight(batch, [], {id_of(row[0]): set(row[0].pages) for row in rows})
        for sequence, start, end, _ in rows:
            text, pages = self._text[id_of(sequence)], sequence.pages
            for at in range(start):
                found = self._slots.get((pages[at // SIZE], at % SIZE))
                assert found == (sequence.namespace, text[: at + 1]), f"{sequence.id} reads another text at {at}"
            written = {pages[at // SIZE] for at in range(start, end)}
            for other, used in (self._flight.pages if self._flight else {}).items():
                assert other == id_of(sequence) or not written & used, "a pass in flight uses the page"
        for sequence, start, end, yields in rows:
            text = self._text[id_of(sequence)]
            for at in range(start, end):
                self._slots[sequence.pages[at // SIZE], at % SIZE] = (sequence.namespace, text[: at + 1])
            self.computed += end - start
            flight.tokens.append(token(sequence) if yields else -1)
            if yields:
                text.append(flight.tokens[-1])
        return flight

    def _join(self, batch: Batch) -> None:
        """As the runner does."""
        if self.kv.host is not None:
            join(self.kv.host, batch, SIZE, self.allocator.unclean, everything=False)
        self._slots |= {(page, at): None for page in self.allocator.take_unclean() for at in range(SIZE)}

    def _land(self, flight: "PassInFlight | None") -> dict[str, FinishReason]:
        ended = {}
        for progress in self.scheduler.advance(flight.batch, Yielded(flight.tokens)) if flight else ():
            if progress.finish:
                ended[progress.sequence.id] = progress.finish
                del self.live[progress.sequence.id]
        self.check()
        return ended


class Moving:
    """Is Move. It lands some turns later, and runs then or when somebody waits for it, after those `before` it."""

    def __init__(self, copies: "SlotCopies", run: Any, before: Iterable["Moving"], turns: int) -> None:
        self._copies, self._run, self._before = copies, run, tuple(before)
        self._lands, self._done = copies.turn + turns, False

    @property
    def landed(self) -> bool:
        if self._copies.turn >= self._lands:
            self.force()
        return self._copies.turn >= self._lands

    def force(self) -> None:
        if not self._done:
            self._done = True
            for one in self._before:
                one.force()
            self._run()


class SlotCopies:
    """Is Copies, over what each slot of the device holds. Nothing is copied before it must be."""

    page_bytes, store_seconds, load_seconds, failed_allocations = 1, 0.0, 0.0, 0
    at_once = 2

    def __init__(self, slots: int, failing: int) -> None:
        self.slots, self.turn, self.delays = slots, 0, (2, 2)
        self.device: dict[tuple[int, int], object] = {}
        """What each slot of the device holds: all tokens up to there, as keys and values depend on them."""
        self._host: dict[int, list[object]] = {}
        self._stores: list[Moving] = []
        self._loads: list[Moving] = []
        self._failing, self._calls, self.loads = failing, 0, 0
        self.fails_at: int | None = None
        """The number of a load that fails."""
        self.moved = {"store": list[int](), "load": list[int]()}
        """Pages of the launched copies of this turn."""

    def allocate(self) -> None:
        """All of it is there."""

    def store(self, moved: Mapping[int, int]) -> Stored:
        staged = dict[int, list[object]]()

        def gather() -> None:
            for slot, page in moved.items():
                staged[slot] = [self.device.get((page, at)) for at in range(SIZE)]

        left = Moving(self, gather, self._stores[-1:], self.delays[0])
        kept = Moving(self, lambda: self._host.update(staged), [left], self.delays[0])
        self._stores.append(kept)
        self.moved["store"] += moved.values()
        self._may_fail()
        return Stored(left, kept)

    def load(self, slots: Any, pages: Any, behind: Any) -> Moving:
        def copy() -> None:
            for slot, page in zip(slots, pages, strict=True):
                self.device |= {(page, at): held for at, held in enumerate(self._host[slot])}

        self.loads += 1
        self._loads.append(Moving(self, copy, [*self._loads[-1:], *behind], self.delays[1]))
        self.moved["load"] += pages
        self._may_fail()
        if self.loads == self.fails_at:
            raise CopyFailed
        return self._loads[-1]

    def wait(self, moves: Iterable[Any]) -> None:
        for move in moves:
            move.force()

    def wait_for_all(self) -> None:
        self.wait(self._stores[-1:] + self._loads[-1:])

    def _may_fail(self) -> None:
        """What fails is on its way all the same."""
        self._calls += 1
        if self._failing and self._calls % self._failing == 0:
            raise CopyFailed


class PassInFlight(NamedTuple):
    """A pass that runs, and the pages of each of its sequences."""

    batch: Batch
    tokens: list[int]
    pages: dict[int, set[int]]


id_of = id
