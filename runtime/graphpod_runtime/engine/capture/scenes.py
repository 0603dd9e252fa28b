"""What a self-check runs graphs on: rows of random tokens in sequences that own pages and have a random past.

The scenes of one `book` have the same sequences, as far as they go: a smaller scene has the beginnings of those of a
larger one. So has the part of their past that is read.

What goes to the device is copied without waiting for it: while it computes for one scene, the host makes the next.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphpod_policy import Phase
from graphpod_policy.features import MOST_TREE_TOKENS
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.cache.kv import KvCache, PageContents
from graphpod_runtime.cache.pages import SCRATCH_PAGE, PageAllocator
from graphpod_runtime.engine.forward.inputs import inputs_of
from graphpod_runtime.engine.schedule.batch import Chunk, DecodeBatch, PrefillBatch
from graphpod_runtime.engine.schedule.sequence import Sequence

SEED = 1_000_003


@dataclass(frozen=True, slots=True)
class Scenes:
    """As `Checker` has these values."""

    phase: Phase
    cache: KvCache
    vocab: int
    max_model_len: int
    long_row: int
    trees: bool

    def of(self, count: int, book: int | None = None, behind: int = 0, turned: bool = False) -> "Scene":
        """`count` rows (fewer when the cache is small), of a `book` or of sequences that no other scene has, on pages
        `behind` so many others. `turned`: the rows of the first sequence are behind all others."""
        generator = torch.Generator().manual_seed(SEED + count)
        allocator = PageAllocator(self.cache.pages)
        allocator.take(behind)
        if self.phase is Phase.Prefill:
            batch = self._prefill(count, allocator, generator, book)
            rows = PrefillBatch((*batch.chunks[1:], *batch.chunks[:1])) if turned else batch
            return Scene(inputs_of(rows, self.cache.page_size, self.cache.device), self.cache, count, batch, book)
        inputs = inputs_of(self._decode(count, allocator, generator), self.cache.page_size, self.cache.device)
        if self.trees:
            # A row sees itself.
            drawn = torch.randint(1 << MOST_TREE_TOKENS, (inputs.count,), generator=generator) << 1
            inputs = replace(inputs, hidden=drawn.to(self.cache.device, non_blocking=True))
        return Scene(inputs, self.cache, count)

    def _decode(self, count: int, allocator: PageAllocator, generator: torch.Generator) -> DecodeBatch:
        """Sequences of different lengths, up to a few pages each; the first is the longest, so that every graph meets a
        past of more than one page where the cache has room for one, and of several parts where attention has those."""
        count, page_size = min(count, allocator.available), self.cache.page_size
        longest = min(self.max_model_len, min(4, allocator.available // count) * page_size)
        room = (allocator.available - (count - 1) * -(-longest // page_size)) * page_size
        first = max(longest, min(self.long_row, self.max_model_len, room))
        lengths = [first, *torch.randint(1, longest + 1, (count - 1,), generator=generator).tolist()]
        return DecodeBatch(tuple(self._sequence(length, allocator, generator) for length in lengths))

    def _prefill(
        self, count: int, allocator: PageAllocator, generator: torch.Generator, book: int | None
    ) -> PrefillBatch:
        """The first half of the rows go on from a past of a page and a token, the rest start sequences."""
        room = allocator.available * self.cache.page_size
        past = min(self.cache.page_size + 1, self.max_model_len - 1, room // 4)
        chunks: list[Chunk] = []
        while count > 0 and allocator.available > 0:
            rows = min(
                count if chunks else -(-count // 2),
                self.max_model_len - past,
                allocator.available * self.cache.page_size - past,
            )
            if rows < 1:
                break
            if book is not None:
                # Not of the book's number and the sequence's alone: two of their sums could be one.
                generator.manual_seed(SEED * (2 + book) + len(chunks))
            # As many tokens as any sequence of the book has, so that a shorter one begins as a longer one does.
            whole = past + rows if book is None else self.max_model_len
            chunks.append(Chunk(self._sequence(past + rows, allocator, generator, whole), past, past + rows))
            count, past = count - rows, 0
        return PrefillBatch(tuple(chunks))

    def _sequence(self, length: int, allocator: PageAllocator, generator: torch.Generator, whole: int = 0) -> Sequence:
        """The first `length` of `whole` tokens that are drawn."""
        tokens = torch.randint(0, self.vocab, (max(length, whole),), generator=generator)[:length].tolist()
        return Sequence("", tokens, length, 1, pages=allocator.take(-(-length // self.cache.page_size)))


class Scene:
    """Inputs over pages with a known random past."""

    def __init__(
        self,
        inputs: Inputs,
        cache: KvCache,
        seed: int,
        batch: PrefillBatch | None = None,
        book: int | None = None,
    ) -> None:
        """`batch` is what `inputs` are of, maybe turned."""
        self.inputs = inputs
        self.book = book
        self.chunks = () if batch is None else batch.chunks
        self._cache = cache
        self._seed = seed
        owned = torch.unique(inputs.tables)
        self.pages = owned[owned != SCRATCH_PAGE].to(cache.device, non_blocking=True)
        """All that the sequences own."""
        self.last_pages = self._indices(chunk.sequence.pages[-1] for chunk in self.chunks)
        """Of each sequence of a prefill: the end of it may have no token."""
        self.unwritten: PageContents = ()
        """What the last pages held at the last reset, of a scene in a book."""

    def reset(self) -> None:
        """The past, with nothing of this pass written. It is drawn each time: kept, the past of a large size would be
        gigabytes that the KV cache could have."""
        self._cache.draw(self.pages, self._seed)
        if self.book is None:
            return
        for number, chunk in enumerate(self.chunks):
            if chunk.start:
                with_past = chunk.sequence.pages[: -(-chunk.start // self._cache.page_size)]
                self._cache.draw(self._indices(with_past), SEED * (2 + self.book) + number)
        self.unwritten = self._cache.take(self.last_pages)

    def keep(self) -> Callable[[], Tensor]:
        """Keeps what its pages hold, until it is asked whether one of them holds another bit then (one element, not
        waited for): in the last pages of the cache, where those are of no scene. Copies would take gigabytes that the
        KV cache could have.
        """
        cache, pages, count = self._cache, self.pages, len(self.pages)
        if 2 * count < cache.pages:
            last = torch.arange(cache.pages - count, cache.pages, device=cache.device)
            cache.copy(pages, last)
            return lambda: cache.differs(pages, last)
        content = cache.take(pages)
        return lambda: cache.unlike(pages, content)

    def _indices(self, pages: Iterable[int]) -> Tensor:
        return torch.tensor(list(pages), dtype=torch.int64).to(self._cache.device, non_blocking=True)
