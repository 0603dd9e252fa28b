"""Copies of the host tier at all ranks: each keeps its part of a page in a pool of its own.

The first rank decides. What it launches the others launch, too, and say whether they could: a copy that one rank could
not launch counts as failed at all of them. They do so while this rank launches its own part, and copies are of many
pages, so the answer costs little. What a pass waits for on the device each rank knows by itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from graphpod_runtime.cache.host_tier import Copies, CopyFailed, HostTier, PoolParts
from graphpod_runtime.cache.moves import Latest, Move, Stored
from graphpod_runtime.engine.pass_copies import reached
from graphpod_runtime.engine.ranks.messages import AwaitCopies, Copied, Load, Store
from graphpod_runtime.engine.ranks.others import Others
from graphpod_runtime.engine.schedule.batch import Batch


class LeadingCopies:
    """Is Copies, of the first rank. `own` are its part."""

    def __init__(self, own: Copies, others: Others, parts: PoolParts, let_go_on: Callable[[], None]) -> None:
        self.own, self.at_once, self.page_bytes = own, own.at_once, sum(parts.page_bytes)
        self._others, self._parts, self._let_go_on = others, parts, let_go_on
        self._stored = self._loaded = 0
        """Pages, here."""
        self._number = 0
        """Of the latest copy."""

    @property
    def slots(self) -> int:
        """Of the pool that is smallest now: each grows by itself."""
        return min(self.own.slots, max(self._parts.first_slots, self._others.host_slots()))

    @property
    def store_seconds(self) -> float:
        return self.own.store_seconds

    @property
    def load_seconds(self) -> float:
        return self.own.load_seconds

    @property
    def failed_allocations(self) -> int:
        """Of all ranks."""
        return self.own.failed_allocations + self._others.failed_allocations()

    def by_rank(self) -> list[tuple[int, int]]:
        """Bytes that each rank says it has copied to the host, and back."""
        own = self._stored * self.own.page_bytes, self._loaded * self.own.page_bytes
        return [own, *self._others.moved()]

    def allocate(self) -> None:
        """The others do so at their own Ready."""
        self.own.allocate()

    def store(self, moved: Mapping[int, int]) -> Stored:
        slots, pages = list(moved), list(moved.values())
        self._order(Store, slots, pages)
        try:
            stored = self.own.store(moved)
            self._stored += len(pages)
        finally:
            failed = self._others.copied(self._number)
        _raise(failed)
        return stored

    def load(self, slots: Sequence[int], pages: Sequence[int], behind: Iterable[Move]) -> Move:
        self._order(Load, list(slots), list(pages))
        try:
            move = self.own.load(slots, pages, behind)
            self._loaded += len(pages)
        finally:
            failed = self._others.copied(self._number)
        _raise(failed)
        return move

    def _order(self, kind: type[Store] | type[Load], slots: list[int], pages: list[int]) -> None:
        self._number += 1
        self._let_go_on()
        self._others.send(kind(self._number, slots, pages))

    def wait(self, moves: Iterable[Move]) -> None:
        self.own.wait(moves)

    def wait_for_all(self) -> None:
        self._others.send(AwaitCopies())
        self.own.wait_for_all()


def _raise(failed: str) -> None:
    if failed:
        raise CopyFailed(failed)


class FollowingCopies:
    """Of another rank, whose `tier` decides nothing. It knows what has landed at this rank, not at the first one."""

    def __init__(self, tier: HostTier, page_size: int, rank: int, say: Callable[[Copied], None]) -> None:
        self.tier, self._page_size, self._rank, self._say = tier, page_size, rank, say
        self._reading = Latest()
        """Loads, by the slots that they read."""

    def launch(self, order: Store | Load) -> None:
        """Launches the copy, and says so."""
        tier = self.tier
        if isinstance(order, Store):
            # The first rank's loads of these pages, and from these slots, have landed.
            tier.join(tier.awaited(order.pages) + self._reading.of(order.slots))
            tier.store(dict(zip(order.slots, order.pages, strict=True)))
        else:
            self._reading.add(order.slots, tier.load(order.slots, order.pages))
        tier.turn(everything=True)
        failed, each = "" if tier.settle() else tier.latest_failure, tier.copies.page_bytes
        self._say(Copied(self._rank, order.number, failed, tier.stored * each, tier.loaded * each))

    def join(self, batch: Batch) -> None:
        """The pass of `batch`, which is launched next, finds its pages as copies leave them."""
        pages = (sequence.pages[:count] for sequence, count in reached(batch, self._page_size))
        self.tier.join(self.tier.awaited(list(chain.from_iterable(pages))))
