"""What every variant is asked to do."""

from itertools import count
from typing import Self

import msgspec

from graphpod_policy import Device

PROMPT = 64
"""Tokens of a decode prompt."""


class Workload(msgspec.Struct, frozen=True, rename="camel"):
    """Sizes and repetitions. Decode is the difference of two generations of unique prompts, of `short` and of `long`
    new tokens, so that prefill cancels out; each is taken once a round, a prefill `repeats` times a round.
    """

    prefill_tokens: tuple[int, ...]
    decode_batches: tuple[int, ...]
    max_model_len: int
    prefill_chunk: int
    rounds: int = 3
    repeats: int = 5
    short: int = 8
    long: int = 136
    prompt: int = PROMPT
    prefill_sizes: tuple[int, ...] | None = None
    """What is captured; None: the default ladders."""
    decode_sizes: tuple[int, ...] | None = None
    wire: bool = True
    """Whether times over the engine's wire are taken too."""

    @property
    def steps(self) -> int:
        """Decode steps that are counted."""
        return self.long - self.short

    @property
    def context(self) -> float:
        """Tokens that a counted decode step attends to, on average."""
        return self.prompt + (self.short + self.long) / 2

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return max(self.prompt + self.long, max(self.prefill_tokens) + 1)

    def changed(
        self, prefill_tokens: tuple[int, ...] | None, decode_batches: tuple[int, ...] | None, rounds: int | None
    ) -> Self:
        """With other sizes where given: contexts grow with them, and a ladder of measured sizes follows them."""
        tokens = prefill_tokens or self.prefill_tokens
        batches = decode_batches or self.decode_batches
        new = msgspec.structs.replace(self, prefill_tokens=tokens, decode_batches=batches, rounds=rounds or self.rounds)
        new = msgspec.structs.replace(
            new,
            max_model_len=max(self.max_model_len, new.longest),
            prefill_chunk=max(self.prefill_chunk, *tokens),
        )
        return new if self.prefill_sizes is None else _measured_only(new)


def _measured_only(workload: Workload) -> Workload:
    """Captures no size but those that the workload runs."""
    batches = (batch * workload.prompt for batch in workload.decode_batches)
    sizes = tuple(sorted({*workload.prefill_tokens, *batches}))
    return msgspec.structs.replace(
        workload, prefill_sizes=sizes, decode_sizes=workload.decode_batches, prefill_chunk=max(sizes)
    )


FULL: dict[Device, Workload] = {
    Device.Cuda: Workload((64, 256, 512, 1024, 2048), (1, 8, 32), max_model_len=4096, prefill_chunk=4096),
    Device.Cpu: Workload((16, 64, 256), (1, 4, 8), max_model_len=512, prefill_chunk=256, repeats=1),
}
QUICK: dict[Device, Workload] = {
    Device.Cuda: _measured_only(
        Workload((64, 512), (1, 8), max_model_len=1024, prefill_chunk=512, rounds=2, long=72, wire=False)
    ),
    Device.Cpu: _measured_only(
        Workload((16, 64), (1, 4), max_model_len=256, prefill_chunk=64, repeats=2, short=4, long=36, wire=False)
    ),
}
"""Minutes become one or two: few sizes, short generations, only what is measured is captured."""


class Prompts:
    """Token ids of a vocabulary of `vocab`, no two prompts alike: nothing can be had from a prefix cache."""

    def __init__(self, vocab: int) -> None:
        self._first = min(100, vocab // 2)
        self._span = vocab - self._first
        self._salts = count(1)

    def of(self, tokens: int) -> list[int]:
        """The next prompt."""
        salt = next(self._salts)
        return [self._first + (salt * 7919 + at * 104729) % self._span for at in range(tokens)]
