"""What ranks agree on before any of them acts: a rank that degrades alone leaves the others waiting in a collective.

Every rank makes the same calls in the same order. Numbers and verdicts go by the host, next to what the device does.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch
import torch.distributed as distributed

from graphpod_runtime.base.errors import CaptureFailed, CaptureOutOfMemory, CompileFailed, GraphError, SelfCheckFailed
from graphpod_runtime.base.failure import RankFailed

KINDS: tuple[type[GraphError], ...] = (CaptureFailed, CaptureOutOfMemory, CompileFailed, SelfCheckFailed)
"""What ranks hear of each other, in the order of votes; of several in one vote the last of these counts."""
WORDS = 2048
"""Bytes of an error's message that other ranks hear."""


class Ranks(Protocol):
    """The processes that run one model together."""

    rank: int
    count: int
    keeps_first_tokens: bool
    """Whether it takes the first rank's tokens in the place of its own: both have the same layers."""

    def least(self, value: int) -> int:
        """The least of what the ranks give."""

    def most(self, value: int) -> int:
        """The most of what the ranks give."""

    def gathered(self, values: Sequence[int]) -> list[list[int]]:
        """What each rank gives, as many values each, in the order of ranks."""

    def agreed(self) -> AbstractContextManager[None]:
        """A GraphError of one rank within is raised at every rank when all have come to the end, or to that of an
        inner one: what ranks have agreed on within they do not vote on again."""


class Alone:
    """One process, which agrees with itself."""

    rank, count, keeps_first_tokens = 0, 1, False

    def least(self, value: int) -> int:
        return value

    def most(self, value: int) -> int:
        return value

    def gathered(self, values: Sequence[int]) -> list[list[int]]:
        return [list(values)]

    @contextmanager
    def agreed(self) -> Iterator[None]:
        yield


ALONE = Alone()


@contextmanager
def computing_together(ranks: Ranks) -> Iterator[None]:
    """Around code that may hold collectives: of several ranks, one with a GraphError within ends its start by
    RankFailed, because no vote of it would meet the others'."""
    try:
        yield
    except GraphError as error:
        if ranks.count == 1:
            raise
        where = f"rank {ranks.rank} of {ranks.count}"
        raise RankFailed(error.code, f"{where} cannot go on, nor can the others do without it: {error}") from error


class Together:
    """One of several ranks, whose group `votes` is of host memory."""

    def __init__(self, rank: int, count: int, votes: Any, *, keeps_first_tokens: bool = True) -> None:
        self.rank, self.count, self._votes = rank, count, votes
        self.keeps_first_tokens = keeps_first_tokens

    def least(self, value: int) -> int:
        return -self.most(-value)

    def most(self, value: int) -> int:
        number = torch.tensor([value], dtype=torch.int64)
        distributed.all_reduce(number, distributed.ReduceOp.MAX, self._votes)
        return int(number)

    def gathered(self, values: Sequence[int]) -> list[list[int]]:
        own = torch.tensor(list(values), dtype=torch.int64)
        each = [torch.empty_like(own) for _ in range(self.count)]
        distributed.all_gather(each, own, self._votes)
        return [one.tolist() for one in each]

    @contextmanager
    def agreed(self) -> Iterator[None]:
        own: GraphError | None = None
        try:
            yield
        except GraphError as error:
            if error.agreed:
                raise
            own = error
        # Of two that fail alike the lower rank speaks.
        vote = 0 if own is None else (1 + KINDS.index(type(own))) * self.count - self.rank
        if (worst := self.most(vote)) == 0:
            return
        kind, speaker = KINDS[-(-worst // self.count) - 1], -worst % self.count
        heard = kind(self._words(speaker, own))
        heard.agreed = True
        raise heard from own

    def _words(self, speaker: int, own: GraphError | None) -> str:
        """The message of the rank that speaks."""
        said = torch.zeros(WORDS, dtype=torch.uint8)
        if speaker == self.rank:
            text = f"rank {self.rank}: {own}".encode()[:WORDS]
            said[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        distributed.broadcast(said, src=speaker, group=self._votes)
        return bytes(said.tolist()).rstrip(b"\0").decode(errors="ignore")
