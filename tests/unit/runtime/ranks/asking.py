"""What an engine is asked in tests of ranks: the same of one rank and of several."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import numpy

from graphpod_runtime.engine.forward.drafting.drafting_seats import DraftingSeats
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.pooled import Pooled
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import LogprobRequest, Sequence
from graphpod_runtime.grammar.vocabulary import read_vocabulary
from graphpod_runtime.kernels.rows.prompt_lookup import Found
from graphpod_runtime.wire.messages import Pooling


class Ask(msgspec.Struct, frozen=True):
    """Prompts that come together, or one after the other, so that a later one may find the prefix of an earlier: that
    ask is the last, because its scheduler keeps pages."""

    prompts: list[list[int]] = []
    max_tokens: int = 12
    temperature: float = 0.0
    prompt_logprobs: bool = False
    prefixes: bool = False
    pools: bool = False
    """An embedding of each prompt is asked, the mean of its states."""
    grammars: int = 0
    """So many requests with grammars, penalties, filters and log-probabilities, next to the prompts."""
    aborted: int | None = None
    """The prompt whose request is aborted while it decodes, with passes in flight."""


class Told(msgspec.Struct, frozen=True):
    """The answers, and how they came."""

    texts: list[list[int]]
    scored: list[list[float]]
    pooled: list[list[float]]
    cached: int
    """Prompt tokens that the prefix cache had."""
    preemptions: int
    on_host: int
    """Prompt tokens that were loaded from the host tier."""
    moved: list[tuple[int, int]]
    """Bytes that each rank has copied to the host, and back."""
    failures: dict[str, int]
    """Of copies."""
    ahead: int
    """Most passes that were launched and had not landed."""
    batches: list[int]
    """Rows of each decode pass."""


class Watched(NamedTuple):
    """A runner whose launches are counted."""

    runner: Runner
    flights: list[int]
    rows: list[int]

    @property
    def ahead(self) -> bool:
        return self.runner.ahead

    def launch(self, batch: object) -> object:
        self.flights[0] += 1
        self.flights[1] = max(self.flights)
        if (sequences := getattr(batch, "sequences", None)) is not None:
            self.rows.append(len(sequences))
        return self.runner.launch(batch)  # type: ignore[arg-type]

    def choose(self, flight: object) -> None:
        self.runner.choose(flight)  # type: ignore[arg-type]

    def land(self, flight: object) -> object:
        self.flights[0] -= 1
        return self.runner.land(flight)  # type: ignore[arg-type]


def recorded_drafts(runner: Runner) -> list[list[int]]:
    """What `runner`, which is started, drafts from now on for each sequence of each pass, trees packed."""
    made: list[list[int]] = []
    seats = runner.engine.seats
    assert isinstance(seats, DraftingSeats)
    propose = seats.proposer.propose

    def recorded(*arguments: Any) -> Found:
        found = propose(*arguments)
        made.extend(found.drafts.flatten(1).tolist())
        return found

    seats.proposer = SimpleNamespace(propose=recorded)
    return made


def tell(runner: Runner, ask: Ask) -> Told:
    """What `runner`, which is started, answers."""
    open_at_once = len(ask.prompts) + ask.grammars
    limits = Limits.serving(runner.config) if ask.prefixes else Limits.of(runner.config, open_at_once)
    tier = runner.host_tier if ask.prefixes else None
    scheduler = Scheduler(runner.pages, limits, runner.eos_ids, tier)
    sequences = _sequences(ask) + (_with_grammars(runner, ask.grammars) if ask.grammars else [])
    watched = Watched(runner, [0, 0], [])
    turns = RunAhead(scheduler, watched)  # type: ignore[arg-type]
    for sequence in sequences:
        scheduler.submit(sequence)
        while ask.prefixes and turns.busy:
            turns.turn()
    aborted = None if ask.aborted is None else sequences[ask.aborted]
    while turns.busy:
        turns.turn()
        if aborted is not None and len(aborted.tokens) > aborted.prompt_len + 2:
            assert watched.flights[0] > 0
            assert scheduler.abort(aborted.id)
            aborted = None
    return Told(
        [one.tokens[one.prompt_len :] for one in sequences],
        [[logprob.logprob for logprob in one.prompt_logprobs] for one in sequences],
        [_vector(one.pooled) for one in sequences if one.pooled is not None],
        sum(one.cached or 0 for one in sequences),
        scheduler.preemptions,
        0 if tier is None else tier.hit_tokens,
        []
        if tier is None
        else tier.by_rank() or [(tier.stored * tier.copies.page_bytes, tier.loaded * tier.copies.page_bytes)],
        {} if tier is None else {reason.value: count for reason, count in tier.failures.items() if count},
        watched.flights[1],
        watched.rows,
    )


def _sequences(ask: Ask) -> list[Sequence]:
    wants = LogprobRequest(prompt=0) if ask.prompt_logprobs else LogprobRequest()
    return [
        Sequence(f"prompt {index}", list(prompt), len(prompt), ask.max_tokens, Sampling(ask.temperature, seed=7),
                 ignore_eos=True, wants=wants, pooled=Pooled(Pooling.Mean) if ask.pools else None)
        for index, prompt in enumerate(ask.prompts)
    ]  # fmt: skip


def _with_grammars(runner: Runner, count: int) -> list[Sequence]:
    from tests.unit.runtime.grammar.test_answers import requests

    folder = Path(runner.config.model.path)
    return requests(read_vocabulary(folder, runner.vocabulary, runner.eos_ids), count, tokens=24)


def _vector(pooled: Pooled) -> list[float]:
    found = pooled.vector()
    assert found is not None, "it is finite"
    return numpy.frombuffer(found, dtype="<f4").tolist()
