"""A run of an engine over one schedule, recorded; and the same schedule run again with the tokens of the record.

A schedule depends on tokens (an end, a page crossed), so the second run is given the first one's: each of its own
choices is compared where it was made, and one that differs cannot lead the rest astray.
"""

import math
import zlib
from collections.abc import Sequence as List
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy
from llguidance import LLMatcher

from graphpod_policy import EngineConfig, Phase
from graphpod_runtime.cache.host_tier import HostTier
from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.engine.forward.pass_in_flight import PassInFlight
from graphpod_runtime.engine.schedule.batch import Batch, DecodeBatch, PrefillBatch
from graphpod_runtime.engine.schedule.pooled import Pooled
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.sequence import LogprobRequest, Sequence
from graphpod_runtime.engine.schedule.yielded import Yielded
from graphpod_runtime.grammar.matcher import AnswerGrammar
from graphpod_runtime.wire.messages import Logprob, Pooling
from truth.schedule.choice import rivals, scores
from truth.schedule.grammars import Matchers, allowed

RIVALS = 32
"""So many tokens a record names at least: those that eager nearly chose, all that a rounding may bring to the front."""


class ScheduleDiffers(Exception):
    """The second run does not follow the first one's schedule: nothing can be compared."""


class Driven(Protocol):
    """What a schedule drives: a runner."""

    config: EngineConfig
    pages: PageAllocator
    eos_ids: tuple[int, ...]
    host_tier: HostTier | None

    @property
    def ahead(self) -> bool: ...
    def launch(self, batch: Batch, given: List[int] | None = None) -> PassInFlight: ...
    def choose(self, flight: PassInFlight) -> None: ...
    def land(self, flight: PassInFlight) -> Yielded: ...


@dataclass(frozen=True, slots=True)
class RecordedPass:
    """One pass: what each of its sequences or chunks was (request, first token, end) and what it yielded, with a
    log-probability or None for each of them.
    """

    phase: Phase
    rows: tuple[tuple[str, int, int], ...]
    yielded: Yielded


class RecordedFlight(NamedTuple):
    """A pass on its way, and the tokens that are handed out for it; None: its own."""

    flight: PassInFlight
    phase: Phase
    rows: tuple[tuple[str, int, int], ...]
    tokens: list[int] | None
    landed: Yielded | None = None
    """What it has yielded already."""


@dataclass(slots=True)
class RecordedSchedule:
    """Is Driven: `runner`, recorded. With `given` it hands out that record's tokens instead of its own, and later
    passes go on from them."""

    runner: Driven
    wants: LogprobRequest = field(default_factory=lambda: LogprobRequest(answer=RIVALS))
    sampling: Sampling = field(default_factory=Sampling)
    """Of every request, each with a seed of its own."""
    matchers: Matchers = (None,)
    """Of requests in turn: their grammars."""
    poolings: tuple[Pooling | None, ...] = (None,)
    """Of requests in turn: those that want an embedding."""
    given: "RecordedSchedule | None" = None
    stages: int = 1
    """Of the pipeline whose schedule this is. A runner with fewer computes each pass before the next is planned."""
    passes: list[RecordedPass] = field(default_factory=list)
    sequences: dict[str, Sequence] = field(default_factory=dict)
    """Every sequence that has run, by id."""
    _constrained: dict[str, LLMatcher] = field(default_factory=dict)
    """Grammars at the beginning of the answers that have one."""
    _requests: int = 0
    _launched: int = 0

    @property
    def config(self) -> EngineConfig:
        return self.runner.config

    @property
    def pages(self) -> PageAllocator:
        return self.runner.pages

    @property
    def host_tier(self) -> HostTier | None:
        return self.runner.host_tier

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return self.runner.eos_ids

    @property
    def ahead(self) -> bool:
        return self.runner.ahead

    def launch(self, batch: Batch) -> RecordedFlight:
        """Launches `batch`. ScheduleDiffers when `given` ran another one here."""
        phase, rows = _rows(batch)
        sequences = [chunk.sequence for chunk in batch.chunks] if isinstance(batch, PrefillBatch) else batch.sequences
        self.sequences |= {sequence.id: sequence for sequence in sequences}
        index, tokens = self._launched, None
        self._launched += 1
        if self.given is not None:
            wanted = self.given.passes[index] if index < len(self.given.passes) else None
            if wanted is None or (wanted.phase, wanted.rows) != (phase, rows):
                raise ScheduleDiffers(f"pass {index} is {phase} of {rows}, the record has {wanted}")
            tokens = wanted.yielded.tokens
        flight = self.runner.launch(batch, tokens)
        if not self._waits:
            return RecordedFlight(flight, phase, rows, tokens)
        self.runner.choose(flight)
        return RecordedFlight(flight, phase, rows, tokens, self.runner.land(flight))

    @property
    def _waits(self) -> bool:
        """Whether the runner has no room for the passes that are in flight at one time."""
        return self.stages > 1 and self.stages > self.config.features.pipeline

    def choose(self, flight: RecordedFlight) -> None:
        """As `runner` does."""
        if flight.landed is None:
            self.runner.choose(flight.flight)

    def land(self, flight: RecordedFlight) -> Yielded:
        """Records what the pass yields."""
        yielded = self.runner.land(flight.flight) if flight.landed is None else flight.landed
        answers = yielded.answers or (None,) * len(yielded.tokens)
        self.passes.append(RecordedPass(flight.phase, flight.rows, replace(yielded, answers=answers)))
        return yielded if flight.tokens is None else replace(yielded, tokens=flight.tokens)

    def forward(self, batch: Batch) -> Yielded:
        """`batch` from its launch to its landing."""
        flight = self.launch(batch)
        self.choose(flight)
        return self.land(flight)

    def sequence(self, id: str, tokens: List[int], new: int) -> Sequence:
        """A request of this run."""
        sampling = replace(self.sampling, seed=zlib.crc32(id.encode()))
        matcher = self.matchers[self._requests % len(self.matchers)]
        pooling = self.poolings[self._requests % len(self.poolings)]
        self._requests += 1
        if matcher is not None:
            self._constrained[id] = matcher
        return Sequence(
            id, list(tokens), len(tokens), new if pooling is None else 1, sampling, ignore_eos=True, wants=self.wants,
            grammar=None if matcher is None else AnswerGrammar(matcher.deep_copy()),
            pooled=None if pooling is None else Pooled(pooling),
        )  # fmt: skip

    def scores(self, id: str, logprob: Logprob, end: int) -> dict[int, float]:
        """Of the tokens that request `id` may choose behind its first `end` tokens, whose next one has `logprob`."""
        sequence = self.sequences[id]
        answer = sequence.tokens[sequence.prompt_len : end]
        found = scores(logprob, sequence.sampling, end, answer)
        if (matcher := self._constrained.get(id)) is None:
            return found
        fitting = allowed(matcher, answer)
        return {token: score for token, score in found.items() if token in fitting}


def _rows(batch: Batch) -> tuple[Phase, tuple[tuple[str, int, int], ...]]:
    if isinstance(batch, DecodeBatch):
        rows = tuple((one.id, end - 1, end) for one, end in zip(batch.sequences, batch.ends, strict=True))
        return Phase.Decode, rows
    return Phase.Prefill, tuple((one.sequence.id, one.start, one.end) for one in batch.chunks)


@dataclass(frozen=True, slots=True)
class Difference:
    """A second run compared with a record. `worst` is the largest difference of a log-probability that both have, or
    of an entry of an embedding; `first` says which token was the first wrong one.
    """

    tokens: int = 0
    near_ties: int = 0
    wrong: int = 0
    scored: int = 0
    worst: float = 0.0
    first: str = field(default="", compare=False)

    def __add__(self, other: "Difference") -> "Difference":
        return Difference(
            self.tokens + other.tokens,
            self.near_ties + other.near_ties,
            self.wrong + other.wrong,
            self.scored + other.scored,
            max(self.worst, other.worst),
            self.first or other.first,
        )


def compare(record: RecordedSchedule, other: RecordedSchedule, near: float) -> Difference:
    """`other`, which was given `record`. A token that differs is a near-tie when the record has it among its best by
    score, less than `near` behind the first; any other is wrong. ScheduleDiffers when one of them ran more passes.
    """
    if len(record.passes) != len(other.passes):
        raise ScheduleDiffers(f"{len(other.passes)} passes, the record has {len(record.passes)}")
    total = Difference()
    for wanted, got in zip(record.passes, other.passes, strict=True):
        total += _tokens(wanted, record, got.yielded, near)
        if other.wants.answer is not None:
            total += _logprobs(wanted.yielded.answers, got.yielded.answers)
        if other.wants.prompt is not None:
            for prompt, own in zip(wanted.yielded.prompts, got.yielded.prompts, strict=True):
                total += _logprobs(prompt, own)
    for id, sequence in record.sequences.items():
        if sequence.pooled is not None:
            total += Difference(scored=1, worst=_apart(sequence.pooled, other.sequences[id].pooled))
    return total


def furthest_choice(record: RecordedSchedule, other: RecordedSchedule) -> float:
    """How far behind the record's likeliest token that is which `other`, given the record, would have chosen; the most
    of all rows. The record names every token."""
    most = 0.0
    for wanted, got in zip(record.passes, other.passes, strict=True):
        for one, token in zip(wanted.yielded.answers, got.yielded.tokens, strict=True):
            if one is not None:
                scored = dict(one.top)
                most = max(most, max(scored.values()) - scored[token])
    return most


def _apart(one: Pooled, other: Pooled | None) -> float:
    """The largest difference of an entry of two embeddings of length 1; infinite when one of them is no vector."""
    found = [None if pooled is None else pooled.vector() for pooled in (one, other)]
    if None in found:
        return math.inf
    here, there = (numpy.frombuffer(raw or b"", dtype="<f4") for raw in found)
    return float(numpy.abs(here / numpy.linalg.norm(here) - there / numpy.linalg.norm(there)).max())


def _tokens(one: RecordedPass, record: RecordedSchedule, other: Yielded, near: float) -> Difference:
    total, yielded = Difference(), one.yielded
    for row, token, got, logprob in zip(one.rows, yielded.tokens, other.tokens, yielded.answers, strict=True):
        if logprob is None:  # a chunk that does not end its prompt has no token
            continue
        id, _, end = row
        scored = record.scores(id, logprob, end)
        if token == got:
            total += Difference(1)
        elif got in rivals(scored, near):
            total += Difference(1, near_ties=1)
        else:
            where = f"{one.phase} of request {id} behind {end} tokens"
            total += Difference(1, wrong=1, first=f"{where}: {got} is {behind(scored, got)}, {near:.2g} allowed")
    return total


def behind(scored: dict[int, float], token: int) -> str:
    """Where a record has `token`."""
    best = max(scored, key=scored.__getitem__)
    if token in scored:
        return f"{scored[best] - scored[token]:.2g} behind eager's choice, {best}"
    last = f"more than {scored[best] - min(scored.values()):.2g} behind eager's choice, {best}"
    return f"{last}, and none of its {len(scored)}"


def _logprobs(record: List[Logprob | None], other: List[Logprob | None]) -> Difference:
    """Of the same token on both sides; one that differs is counted as a token."""
    total = Difference()
    for one, two in zip(record, other, strict=True):
        if one is not None and two is not None and one.token == two.token:
            total += Difference(scored=1, worst=distance(one, two))
    return total


def distance(one: Logprob, other: Logprob) -> float:
    """How far the log-probabilities of one token lie apart; infinitely when one of them is no number."""
    apart = abs(one.logprob - other.logprob)
    return math.inf if math.isnan(apart) else apart
