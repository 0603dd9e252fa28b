"""Times of one subject: anything that generates, in this process or behind a wire."""

import time
from collections.abc import Callable

import msgspec

from graphpod_runtime.bench.figures.workload import Prompts, Workload

Generate = Callable[[list[list[int]], int], object]
"""(prompts, new tokens of each) -> when all of them are on the host."""

Times = dict[int, list[float]]
"""Seconds by size, one for each repetition."""


class Samples(msgspec.Struct, frozen=True, rename="camel"):
    """Raw times: a prefill with its first token by tokens, generations of `short` and `long` new tokens by batch."""

    prefill: Times = {}
    short: Times = {}
    long: Times = {}

    def __add__(self, other: "Samples") -> "Samples":
        return Samples(*(_joined(getattr(self, name), getattr(other, name)) for name in ("prefill", "short", "long")))


def _joined(one: Times, other: Times) -> Times:
    return {size: one.get(size, []) + other.get(size, []) for size in sorted({*one, *other})}


class Meter:
    """Runs a workload on one subject, round by round, no prompt twice."""

    def __init__(self, generate: Generate, workload: Workload, vocab: int) -> None:
        self._generate = generate
        self._workload = workload
        self._prompts = Prompts(vocab)

    def warm(self) -> None:
        """Each size once, untimed."""
        for tokens in self._workload.prefill_tokens:
            self._generate([self._prompts.of(tokens)], 1)
        for batch in self._workload.decode_batches:
            self._generate(self._batch(batch), 2)

    def round(self) -> Samples:
        """One round."""
        work = self._workload
        return Samples(
            prefill={
                tokens: [self._seconds([self._prompts.of(tokens)], 1) for _ in range(work.repeats)]
                for tokens in work.prefill_tokens
            },
            short={batch: [self._seconds(self._batch(batch), work.short)] for batch in work.decode_batches},
            long={batch: [self._seconds(self._batch(batch), work.long)] for batch in work.decode_batches},
        )

    def _batch(self, batch: int) -> list[list[int]]:
        return [self._prompts.of(self._workload.prompt) for _ in range(batch)]

    def _seconds(self, prompts: list[list[int]], new: int) -> float:
        began = time.perf_counter()
        self._generate(prompts, new)
        return time.perf_counter() - began
