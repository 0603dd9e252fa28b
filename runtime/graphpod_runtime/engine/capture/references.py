"""Uncaptured passes that answer for more sizes of a prefill ladder than their own.

A row's result depends on the rows in front of it in its sequence, and on nothing else. So what the captured code makes
of a large scene has in it what it makes of each smaller scene of the same book, up to rounding: kernels may round by
the number of rows. Mostly they do not. Where all bits are equal, results and KV pages, the graph has computed what the
captured code does, and that need not run again at the graph's own size. Where one is not, it runs there, as before.

What a replay finds in a buffer that it should have written is of other tokens. The last replay's are of the other one
of two books, one for every other size. A reference leaves its rows in the same buffers; it runs with its first sequence
behind the others, so none of its rows is where a replay has it.

Each book's reference is the run of the largest size that has it, which is compared with that size's own replay, too.
It keeps its pages in the KV cache; a cache that has no room for them has no references.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from graphpod_policy import Phase
from graphpod_policy.cost.selfcheck import Comparison
from graphpod_runtime.base import tensor_pytree
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.cache.cells import bits
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.engine.capture.scenes import Scene, Scenes
from graphpod_runtime.engine.schedule.batch import Chunk

BOOKS = 2


class Uncaptured(Protocol):
    """What references are runs of."""

    def uncaptured(self, inputs: Inputs, size: int) -> tuple[Any, ...]: ...


@dataclass(frozen=True, slots=True)
class Reference:
    """What the captured code has made of `scene`, which is turned and whose pages hold what it wrote."""

    scene: Scene
    results: tuple[Tensor, ...]

    def covers(self, chunks: Sequence[Chunk]) -> bool:
        """Whether each of `chunks` is the beginning of its own."""
        own = self.scene.chunks
        return len(chunks) <= len(own) and all(
            chunk.start == whole.start and chunk.end <= whole.end for chunk, whole in zip(chunks, own, strict=False)
        )

    def rows_of(self, chunks: Sequence[Chunk], result: Tensor) -> Tensor:
        """What `result` has for `chunks`."""
        own, rows = self.scene.chunks, self.scene.inputs.count
        parts, first = [], rows - (own[0].end - own[0].start)
        for chunk, whole in zip(chunks, own, strict=False):
            parts.append(result[first : first + chunk.end - chunk.start])
            first = (first + whole.end - whole.start) % rows
        return torch.cat(parts)


@dataclass(frozen=True, slots=True)
class References:
    """Those of a check, by their books; without any, every size has its own uncaptured run."""

    cache: KvCache | None = None
    books: dict[int, int] = field(default_factory=dict)
    """By size."""
    references: dict[int, Reference] = field(default_factory=dict)

    @classmethod
    def of(cls, wanted: Sequence[Comparison], scenes: Scenes, subject: Uncaptured) -> "References":
        """Those for the comparisons that are `wanted`, ascending; each of their scenes lies in front of all of them."""
        own = [one for one in wanted if one.uncaptured]
        if scenes.phase is not Phase.Prefill or len(own) <= BOOKS:
            return cls()
        room = max(len(scenes.of(one.count).pages) for one in wanted[-BOOKS:])
        # The scene that is checked, each book's, and what the first one keeps at the end of the cache.
        if (2 + BOOKS) * room >= scenes.cache.pages:
            return cls()
        references = {}
        for book, one in enumerate(own[: -1 - BOOKS : -1]):
            scene = scenes.of(one.count, book, behind=(1 + book) * room, turned=True)
            scene.reset()
            references[book] = Reference(scene, copies(subject.uncaptured(scene.inputs, one.size)))
        books = {one.size: at % BOOKS for at, one in enumerate(reversed(own))}
        return cls(scenes.cache, books, references)

    def book(self, comparison: Comparison) -> int | None:
        """Of the scene of `comparison`; None: its scene is like no other."""
        return self.books.get(comparison.size) if comparison.uncaptured else None

    def unlike(self, scene: Scene, replayed: tuple[Tensor, ...]) -> Tensor | None:
        """Whether `replayed`, or what the replay has left in the pages of `scene`, has another bit than the reference;
        one element, not waited for. None where there is no reference."""
        if self.cache is None or scene.book is None:
            return None
        reference, chunks = self.references[scene.book], scene.chunks
        if not reference.covers(chunks):
            return None
        other = [
            (got != reference.rows_of(chunks, wanted)).any()
            for got, wanted in zip(replayed, reference.results, strict=True)
        ]
        other += self._other_pages(scene, reference.scene.chunks)
        return torch.stack(other).any()

    def _other_pages(self, scene: Scene, wholes: Sequence[Chunk]) -> list[Tensor]:
        """Whether pages differ: those that are full, and of the last ones what has a token; the rest is as it was."""
        assert self.cache is not None
        size, device = self.cache.page_size, self.cache.device
        pairs, last, used = [], [], []
        for chunk, whole in zip(scene.chunks, wholes, strict=False):
            own, theirs = chunk.sequence.pages, whole.sequence.pages
            pairs += list(zip(own[:-1], theirs, strict=False))
            last.append(theirs[len(own) - 1])
            used.append(chunk.end - (len(own) - 1) * size)
        copied = partial(Tensor.to, device=device, non_blocking=True)
        full, expected = copied(torch.tensor(pairs, dtype=torch.int64).view(-1, 2)).unbind(1)
        written = copied(torch.arange(size) < torch.tensor(used)[:, None])[None, :, :, None, None]
        now = self.cache.take(scene.last_pages)
        there = self.cache.take(copied(torch.tensor(last)))
        other = [
            (bits(one) != torch.where(written, bits(wanted), bits(before))).any()
            for one, wanted, before in zip(now, there, scene.unwritten, strict=True)
        ]
        return [*other, self.cache.differs(full, expected)]


def copies(results: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """The tensors of `results`, which the next pass may overwrite."""
    return tuple(result.clone() for result in tensor_pytree.leaves_of(results)[0])
