"""The KV pages of sequences: their own, and those that they read in the prefix cache.

A sequence reads the pages of its longest cached prefix and owns the rest of its pages. What it has computed enters the
tree as whole pages: a prompt's when the pass that ends it gave a finite row, an answer's when the sequence ends or is
set back. Memory without readers belongs to the tree until somebody needs it.

With a host tier evicted pages are copied to the host. A sequence whose prefix goes on there gets them back into pages
of its own, which are the tree's from then on. While they are on their way the load is one more reader of them and of
their slots, so neither goes to anyone else. A sequence `awaits` the copies of all pages that it has, whoever called for
them; until then no pass of it reaches these, or that pass waits on the device. Where a load fails, its pages leave the
tree, and the sequences that were to read them are computed.

A pass in flight reads and writes pages of its sequences: whoever schedules takes the pages of a sequence back when its
last pass has landed.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from graphpod_runtime.cache.file_reads import FileReads
from graphpod_runtime.cache.flush import POLL_SECONDS, Flush
from graphpod_runtime.cache.host_tier import EVICTED_AT_ONCE, HostTier
from graphpod_runtime.cache.moves import Awaited
from graphpod_runtime.cache.radix import RadixTree
from graphpod_runtime.cache.radix_node import Bookmark, Match, Node
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.wire.messages import Pooling


class Allocator(Protocol):
    """The allocator of KV pages, `cache.pages.PageAllocator`."""

    capacity: int
    drafted: set[int]

    @property
    def available(self) -> int: ...
    def take(self, count: int) -> list[int]: ...
    def free(self, pages: list[int], *, clean: bool = True) -> None: ...
    def overwritten(self, pages: list[int]) -> None: ...


@dataclass(slots=True)
class _Holding:
    """What one sequence has: the locked end of the path that it reads, and the pages that are its own."""

    node: Node
    own: list[int] = field(default_factory=list)


class _Load(NamedTuple):
    """A load on its way, the end of the path that it locks, and the slots that it reads."""

    move: Awaited
    node: Node
    slots: list[int]


class KvSpace:
    """Pages of `page_size` tokens out of `pages`. Without `caching` nothing enters the tree."""

    def __init__(
        self, pages: Allocator, page_size: int, caching: bool, drafting: bool = False, host: HostTier | None = None
    ) -> None:
        """`drafting`: pages of a sequence may hold rows that were not looked at, of drafts that were wrong."""
        self.tree = RadixTree(page_size)
        self.host = host if caching else None
        self.files: FileReads | None = None
        if self.host is not None and self.host.files is not None:
            self.files = FileReads(self.host, self.host.files, self.tree)
        self.asked_tokens = 0
        """Tokens of the sequences that were admitted for the first time."""
        self.hit_tokens = 0
        """Those of them that were in the tree, on the device or in the host tier, when the first pass was planned."""
        self._pages = pages
        self._page_size = page_size
        self._caching = caching
        self._drafting = drafting
        self._held: dict[Sequence, _Holding] = {}
        self._bookmarks: dict[Sequence, Bookmark] = {}
        """Of sequences that wait: where their prefixes end in the tree."""
        self._loads: deque[_Load] = deque()

    @property
    def available(self) -> int:
        """Pages that can be taken now, those of unread prefixes included."""
        return self._pages.available + self.tree.evictable

    @property
    def capacity(self) -> int:
        """All pages."""
        return self._pages.capacity

    @property
    def loading(self) -> bool:
        """Whether loads from the host are on their way, which may give pages when they have landed."""
        return bool(self._loads)

    def settle(self) -> bool:
        """Loads that have landed read their pages and slots no more. Whether all copies could be launched: sequences
        that await one that was given up must be set back otherwise."""
        fine = self.host is None or self.host.settle()
        if not fine:
            self.tree.clear_host()
            for move, node, _ in self._loads:
                if move.given_up:
                    self._pages.free(self.tree.withdraw(node), clean=False)
            if self.files is not None:
                self.files.distrust()
        if self.files is not None:
            self.files.settle()
        while self._loads and self._loads[0].move.landed:
            _, node, slots = self._loads.popleft()
            self.tree.release(slots)
            self._pages.free(self.tree.unlock(node), clean=False)
        return fine

    def forget(self) -> None:
        """Nothing is in the prefix cache any more, on the device or in the host tier. No sequence is open."""
        if self.host is not None:
            self.host.join_all()
            self.settle()
        self._pages.free(self.tree.evict(self.tree.evictable).pages)
        self.tree.clear_host()

    def flush(self, until: float, beat: Callable[[], None]) -> None:
        """Before an engine with files ends, and at that time at the latest (time.monotonic): pages that files lack are
        written. No sequence is open, and none will be. `beat` is called meanwhile."""
        if self.host is None or self.host.files is None or self.files is None:
            return
        self.host.files.look_no_more()
        self.host.turn(everything=True)
        while self.settle() and self.files.unsaved and time.monotonic() < until:
            beat()
            time.sleep(POLL_SECONDS)
        if self.files.worth_writing and not self.files.unsaved:
            Flush(self.host, self.host.files, self.tree, until, beat).run()

    def launch_copies(self, *, everything: bool) -> None:
        """Those that a turn may launch, or everything that was called for."""
        if self.host is not None:
            self.host.turn(everything=everything)

    def there(self, sequence: Sequence) -> int:
        """Tokens of `sequence` that a pass may reach: the pages behind them await copies. What a load was to bring and
        never will stays out of reach until the sequence is set back."""
        if sequence.awaits:
            sequence.awaits = [(first, move) for first, move in sequence.awaits if move.lost or not move.landed]
        places = (first for first, _ in sequence.awaits)
        return min(places, default=len(sequence.pages)) * self._page_size

    def begins(self, sequence: Sequence) -> None:
        """A pass of `sequence` is planned: the loads of its prefix cannot fail any more."""
        if not sequence.begun:
            sequence.begun = True
            self.hit_tokens += sequence.cached or 0
            if self.host is not None:
                self.host.hit_tokens += sequence.cached_on_host
            if self.files is not None:
                self.files.begins(sequence)
        if self.host is not None and sequence.awaits_since is not None:
            self.host.wait_seconds += self.host.clock() - sequence.awaits_since
            sequence.awaits_since = None

    def spares_half(self, sequence: Sequence, other: Sequence) -> bool:
        """Whether the pages of `other`, once they are in the tree, spare `sequence` at least half of its work."""
        if not self._caching or sequence.namespace != other.namespace:
            return False
        size, ours, others = self._page_size, sequence.tokens, other.tokens
        if ours[:size] != others[:size]:
            return False
        there = self._there(sequence) * size
        half = there + self._pages_for(-(-(len(ours) - there) // 2)) * size
        if half > min(self._limit(sequence), len(others)):
            return False
        # What differs most likely comes first: requests of the queue are compared with all prompts on their way.
        spans = (half - size, half), (there, half), (0, there)
        return all(self._alike(ours, others, *span) for span in spans)

    def waits_for_files(self, sequence: Sequence) -> bool:
        """Whether pages of `sequence`, which waits, are on their way from files to the host."""
        if self.files is None:
            return False
        if not self.files.asked(sequence):
            text = sequence.tokens[: self._limit(sequence)]
            self.files.ask(sequence, sequence.namespace, text, self._match(sequence))
        return self.files.waits(sequence)

    def missing(self, sequence: Sequence) -> int:
        """Tokens that `sequence` would have to compute if it were admitted now."""
        return len(sequence.tokens) - self._there(sequence) * self._page_size

    def has_room(self, sequence: Sequence, spare: int) -> bool:
        """Whether `sequence` could be admitted now, and `spare` pages be left."""
        there = self._match(sequence)
        return self._pages_for(len(sequence.tokens)) - there.pages + spare <= self.available - there.unlocked

    def admit(self, sequence: Sequence, spare: int) -> bool:
        """Gives `sequence` pages for all its tokens, those of its longest cached prefix among them, which count as
        `computed`. False, and nothing changed, when `spare` pages would not be left.
        """
        if not self.has_room(sequence, spare):
            return False
        bookmark = self._bookmarks.pop(sequence)
        node = self.tree.lock(sequence.tokens, self._limit(sequence), sequence.namespace, bookmark)
        on_device = node.end
        if self.host is not None:
            # Used from now on: the pages that are taken must not push them out.
            self.tree.host_slots(node, sequence.tokens, self._limit(sequence))
        own = self._take(self._pages_for(len(sequence.tokens)) - on_device, spare)
        if self.host is not None:
            node, own = self._loaded(self.host, sequence, node, self.host.soonest(own))
        self._held[sequence] = _Holding(node, own)
        sequence.pages = self.tree.pages(node) + own
        if self.host is not None:
            # Every pass reads all of the prefix.
            read = [(0, move) for move in self.host.awaited(sequence.pages[: node.end])]
            sequence.awaits = read + [(node.end + place, move) for place, move in self.host.steps(own)]
            sequence.awaits_since = self.host.clock() if sequence.awaits else None
        sequence.launched = sequence.computed = node.end * self._page_size
        if sequence.cached is None:
            self.asked_tokens += len(sequence.tokens)
        if not sequence.begun:
            sequence.cached, sequence.cached_on_host = sequence.computed, (node.end - on_device) * self._page_size
            if self.files is not None:
                self.files.admitted(sequence, sequence.cached_on_host)
        return True

    def grow(self, sequence: Sequence) -> None:
        """One more page for `sequence`, where one is available."""
        new = self._take(1)
        sequence.pages += new
        if self.host is not None:
            sequence.awaits += [(len(sequence.pages) - 1, move) for move in self.host.awaited(new)]
        self._held[sequence].own += new

    def take_back(self, sequence: Sequence, tokens: int) -> bool:
        """Takes the pages of `sequence` back that lie behind so many tokens; whether there are any."""
        behind = sequence.pages[self._pages_for(tokens) :]
        if behind:
            gone, holding = set(behind), self._held[sequence]
            sequence.pages = sequence.pages[: -len(behind)]
            sequence.page_losses += 1
            holding.own = [page for page in holding.own if page not in gone]
            self._pages.free(behind, clean=False)
        return bool(behind)

    def publish(self, sequence: Sequence) -> None:
        """The whole pages of what `sequence` has computed enter the tree; it goes on reading them. Where another one
        was first, they stay its own until it ends: locked next to the other's they would take memory twice.
        """
        holding = self._held[sequence]
        if not self.tree.continues(holding.node, sequence.tokens):
            self._insert(sequence, holding)

    def finish(self, sequence: Sequence) -> None:
        """Takes the pages of `sequence` back; what it has computed stays in the tree. Every row of it was finite."""
        if (holding := self._held.get(sequence)) is not None:
            self._insert(sequence, holding)
        self._leave(sequence, clean=True)

    def discard(self, sequence: Sequence) -> None:
        """Takes the pages of `sequence` back, as not clean: no row of it was looked at, or one was not finite."""
        self._leave(sequence, clean=False)

    def condemn(self, sequence: Sequence) -> None:
        """After a row of `sequence` that was not finite: what it reads in the tree is not found again."""
        self._pages.free(self.tree.withdraw(self._held[sequence].node), clean=False)

    def _insert(self, sequence: Sequence, holding: _Holding) -> None:
        # A pass that landed after the end may have computed a token that was not accepted.
        whole = min(sequence.computed, len(sequence.tokens)) // self._page_size
        if self._caching and whole > holding.node.end:
            holding.node, taken = self.tree.insert(holding.node, sequence.tokens, sequence.pages[:whole])
            gone = set(taken)
            holding.own = [page for page in holding.own if page not in gone]

    def _leave(self, sequence: Sequence, *, clean: bool) -> None:
        sequence.pages = []
        self._bookmarks.pop(sequence, None)
        if self.files is not None:
            self.files.gone(sequence)
        if (holding := self._held.pop(sequence, None)) is not None:
            self._pages.free(holding.own, clean=clean and not self._drafting)
            self._pages.free(self.tree.unlock(holding.node), clean=False)

    def _take(self, count: int, spare: int = 0) -> list[int]:
        if (missing := count - self._pages.available) > 0:
            self._evict(missing, spare)
        return self._pages.take(count)

    def _evict(self, count: int, spare: int) -> None:
        """At least so many pages of the tree are free now; their bytes are on their way to the host tier. More go with
        them, `spare` at least: who decodes meanwhile needs single pages, and would wait for the store of all of these.
        So these are the last to be taken, and the first to leave.
        """
        if self.host is None:
            self._pages.free(self.tree.evict(count).pages)
            return
        self.tree.add_slots(self.host.copies.slots - self.tree.slots)
        more = max(spare, EVICTED_AT_ONCE)
        pages, moved, nodes = self.tree.evict(count + more)
        last_taken = set(pages[: max(0, more - self._pages.available)])
        self.host.store(dict(sorted(moved.items(), key=lambda entry: entry[1] not in last_taken)))
        if self.files is not None:
            self.files.stored(nodes)
        self._pages.free(pages)

    def _loaded(self, host: HostTier, sequence: Sequence, node: Node, own: list[int]) -> tuple[Node, list[int]]:
        """The prefix of `sequence` goes on in the host tier where that pays: the end of the path that it reads then,
        with the lock of `node`, and what is left of `own`."""
        slots = self.tree.host_slots(node, sequence.tokens, self._limit(sequence))
        if not host.pays(len(slots)):
            host.skipped_tokens += len(slots) * self._page_size
            return node, own
        pages, rest = own[: len(slots)], own[len(slots) :]
        move = host.load(slots, pages)
        self._pages.overwritten(pages)
        node, _ = self.tree.insert(node, sequence.tokens, self.tree.pages(node) + pages, reads_slots=True)
        self._loads.append(_Load(move, self.tree.lock_path(node), slots))
        return node, rest

    def _match(self, sequence: Sequence) -> Match:
        """What the tree has of a sequence that waits."""
        bookmark = self._bookmarks.setdefault(sequence, Bookmark())
        return self.tree.match(sequence.tokens, self._limit(sequence), sequence.namespace, bookmark)

    def _there(self, sequence: Sequence) -> int:
        """Pages of a sequence that waits which it would not have to compute."""
        there = self._match(sequence)
        worth = self.host is not None and self.host.pays(there.host)
        return there.pages + (there.host if worth else 0)

    def _alike(self, ours: list[int], others: list[int], first: int, end: int) -> bool:
        """Whether these tokens are the same. Little is read behind the first that differ."""
        step = self._page_size
        while first < end:
            span = slice(first, min(end, first + step))
            if ours[span] != others[span]:
                return False
            first, step = span.stop, 2 * step
        return True

    def _limit(self, sequence: Sequence) -> int:
        """Tokens of `sequence` that a prefix may cover: one row is always computed, and so are those to score."""
        if not self._caching:
            return 0
        last = len(sequence.tokens)
        most = (last if sequence.unscored == sequence.prompt_len else sequence.unscored) - 1
        pool = sequence.pooled
        return most if pool is None or pool.by is Pooling.Last else min(most, pool.known)

    def _pages_for(self, tokens: int) -> int:
        return -(-tokens // self._page_size)
