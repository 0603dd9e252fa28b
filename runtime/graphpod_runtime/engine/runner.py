"""The runner: owns model, KV cache and graphs; turns a batch into one forward pass and its next tokens.

A pass is launched and lands later: between the two the host plans the next one. The runner never sees a queue. The loop
decides what runs; the runner decides how: on a graph, or eagerly for one reason.
Every pass counts twice, in places that do not know of each other: `dispatch`'s answer counts the replay or the
fallback, a hook on the model's body counts passes that really ran eagerly.
"""

import time
from collections.abc import Callable
from collections.abc import Sequence as List
from typing import Any

import torch
from torch import Tensor, nn

from graphpod_policy import Backend, EngineConfig, FallbackReason, Phase, Policy
from graphpod_policy import Batch as GatedBatch
from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.engine.capture.debug import Mode
from graphpod_runtime.engine.forward.graph_choice import dispatch
from graphpod_runtime.engine.forward.inputs import Inputs, inputs_of
from graphpod_runtime.engine.forward.launched_pass import LaunchedPass, Moment, Scored
from graphpod_runtime.engine.forward.logprobs import of_hidden, of_logits
from graphpod_runtime.engine.forward.sampler import Sampler, greedy
from graphpod_runtime.engine.ladder_metrics import LadderMetrics
from graphpod_runtime.engine.memory_poisoning import Poison
from graphpod_runtime.engine.pass_metrics import PassMetrics
from graphpod_runtime.engine.schedule.sequence import Batch, DecodeBatch, PrefillBatch, Sequence, Yielded
from graphpod_runtime.engine.start.device_state import LoadModel
from graphpod_runtime.engine.start.starter import Started, Starter
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.wire.counters import Counters
from graphpod_runtime.wire.report import Report


class Runner:
    """One engine. `start` makes it Ready; before that only `counters` may be read."""

    pages: PageAllocator
    eos_ids: tuple[int, ...]
    vocabulary: int
    """Rows of the model's embedding: token ids are below it."""

    def __init__(
        self,
        config: EngineConfig,
        report: Callable[[Report], None],
        started_at: float | None = None,
        load: LoadModel = load_model,
    ) -> None:
        """`started_at`: time.time() when the process began, for the Import stage; None leaves that stage out."""
        self.counters = Counters()
        self._starter = Starter(config, report, self.counters, started_at, load)
        self.config = self._starter.config
        self._backend: Backend = self._starter.backend
        self.counters.start_at_zero(self._backend)
        self._metrics = PassMetrics(self.counters, self._backend)
        self._running: Phase | None = None
        """The phase of the pass that runs now."""
        self._poison: Poison | None = None

    @property
    def report(self) -> Report:
        """The start so far."""
        return self._starter.report

    @property
    def engine(self) -> Started:
        """The parts of a Ready engine, for measurements."""
        return self._engine

    def start(self) -> None:
        """Load, capture, check, size; returns when Ready. StartFailure says why it cannot be."""
        self._engine: Started = self._starter.run()
        self.config = self._starter.config
        self._ladder_metrics = LadderMetrics(self.counters, self._engine.ladders, self._backend)
        self.pages = PageAllocator(self._engine.attention.cache.pages)
        self.eos_ids, self.vocabulary = self._engine.model.shape.eos_ids, self._engine.model.shape.vocab
        self._sampler = Sampler(self._engine.device)
        self._engine.model.body.register_forward_pre_hook(self._count_eager_pass)
        if Mode.Poison in self._engine.modes:
            engine = self._engine
            self._poison = Poison(engine.attention, self.pages, engine.passes.values(), engine.capturer.breaks)

    @property
    def ahead(self) -> bool:
        """Whether a pass may be launched before the one before it has landed."""
        return Mode.Lockstep not in self._engine.modes

    @torch.no_grad()
    def launch(self, batch: Batch, given: List[int] | None = None) -> LaunchedPass:
        """Puts the pass of `batch`, the next token of each of its sequences and the log-probabilities that were asked
        for in line on the device. Passes land in their order. Later passes go on from the tokens that it chooses, or
        from those that are `given` for its chunks or sequences.
        """
        self._clean_pages()
        if self._poison is not None:
            self._poison.spoil(batch)
        if isinstance(batch, DecodeBatch):
            inputs = self._engine.seats.step(batch)
        else:
            inputs = inputs_of(batch, self.config.page_size, self._engine.device)
        self._running = inputs.phase
        began, launching = Moment(self._engine.device), time.perf_counter()
        try:
            results, policy = self._run(inputs)
        finally:
            self._running = None
        self._metrics.launched(inputs.phase, policy, time.perf_counter() - launching)
        if isinstance(batch, DecodeBatch):
            logits, chosen, *_ = results
            tokens = self._sample(batch.sequences, logits, chosen, inputs.positions)
            seated = self._engine.seats.keep(tokens if given is None else _on(tokens.device, given))
            every = (True,) * len(batch.sequences)
            answers = _answers(batch.sequences, range(len(every)), logits, tokens)
            return LaunchedPass.launched(batch, policy, began, every, tokens, seated, answers)
        return self._tail(batch, policy, began, inputs, results[0], given)

    def land(self, flight: LaunchedPass) -> Yielded:
        """What the pass yields; waits for the device."""
        yielded = flight.land()
        self._metrics.landed(flight.phase, flight.policy, flight.device_seconds)
        if flight.seated is not None:
            self._engine.seats.landed(flight.seated, flight.tokens)
        if Mode.Seats in self._engine.modes:
            self._engine.seats.verify()
        return yielded

    def forward(self, batch: Batch) -> Yielded:
        """The pass of `batch` from its launch to its landing."""
        return self.land(self.launch(batch))

    def _tail(
        self,
        batch: PrefillBatch,
        policy: Policy,
        began: Moment,
        inputs: Inputs,
        hidden: Tensor,
        given: List[int] | None,
    ) -> LaunchedPass:
        """What the rows of a prefill pass, hidden [tokens, hidden], yield: few of them reach the head."""
        ends_text = tuple(row >= 0 for row in inputs.yields)
        ending = [index for index, ends in enumerate(ends_text) if ends]
        tokens, seated, answers = inputs.tokens[:0], None, None
        if ending:
            rows = _on(hidden.device, [inputs.yields[index] for index in ending])
            logits = self._engine.model.head(hidden[rows])
            sequences = tuple(batch.chunks[index].sequence for index in ending)
            self._engine.seats.seat(sequences, [batch.chunks[index].end for index in ending], new=True)
            tokens = self._sample(sequences, logits, greedy(logits), inputs.positions[rows])
            kept = tokens if given is None else _on(tokens.device, [given[index] for index in ending])
            seated = self._engine.seats.keep(kept)
            answers = _answers(sequences, ending, logits, tokens)
        prompts = self._prompts(batch, inputs, hidden) if batch.scores_prompt else None
        return LaunchedPass.launched(batch, policy, began, ends_text, tokens, seated, answers, prompts)

    def _prompts(self, batch: PrefillBatch, inputs: Inputs, hidden: Tensor) -> Scored:
        """The log-probabilities of the prompt tokens that each chunk is to score."""
        starts = inputs.metadata.starts.tolist()
        rows, following, owners, tops = list[int](), list[int](), list[int](), list[int]()
        for index, chunk in enumerate(batch.chunks):
            for position in chunk.scored:
                rows.append(starts[index] + position - 1 - chunk.start)
                following.append(chunk.sequence.tokens[position])
                owners.append(index)
                tops.append(chunk.sequence.wants.prompt or 0)
        device = hidden.device
        scores = of_hidden(self._engine.model, hidden[_on(device, rows)], _on(device, following), max(tops))
        return Scored(scores, tuple(owners), tuple(tops))

    def _run(self, inputs: Inputs) -> tuple[tuple[Any, ...], Policy]:
        """One pass over `inputs`, on a graph where one fits: its results, and the policy by which it ran."""
        engine, phase = self._engine, inputs.phase
        choice = dispatch(engine.ladders[phase], _gated(inputs))
        self._ladder_metrics.dispatched(phase, inputs.count, choice)
        if isinstance(choice, FallbackReason):
            before = self._uncompiled()
            engine.attention.plan(inputs.metadata)
            eager = engine.passes[phase].eager(inputs, engine.attention.run, inputs.count)
            reason = choice if self._uncompiled() == before else FallbackReason.Recompiled
            self._metrics.fell_back(phase, reason)
            return eager, Policy.Disabled
        graphs = engine.graphs[phase]
        results = graphs.replay(inputs, choice)
        self._metrics.replayed(phase, graphs.policy, inputs.count, choice)
        return results, graphs.policy

    def _uncompiled(self) -> int:
        """How often compiled code had none for its arguments, and ran as it was written."""
        return 0 if self._engine.cache is None else self._engine.cache.uncompiled

    def _sample(self, sequences: tuple[Sequence, ...], logits: Tensor, chosen: Tensor, positions: Tensor) -> Tensor:
        """As Sampler.tokens."""
        return self._sampler.tokens(sequences, logits, chosen, positions)

    def _clean_pages(self) -> None:
        """Zeroes the pages that may hold NaN before a sequence writes to them: attention over NaN is NaN even where it
        is masked."""
        if pages := self.pages.take_unclean():
            cache = self._engine.attention.cache
            cache.fill(_on(cache.device, pages), 0.0)

    def _count_eager_pass(self, body: nn.Module, arguments: object) -> None:
        """Hook on the body. It does not ask what was dispatched: a replay that runs the model's code counts, too."""
        if self._running is not None:
            self._metrics.ran_eagerly(self._running)


def _on(device: torch.device, rows: list[int]) -> Tensor:
    """`rows` on `device`. The host does not wait for the device: what follows is in line while it computes."""
    return torch.tensor(rows).to(device, non_blocking=True)


def _answers(sequences: tuple[Sequence, ...], entries: List[int], logits: Tensor, tokens: Tensor) -> Scored | None:
    """Log-probabilities of `tokens` [rows], drawn from logits [rows, vocab] for these `entries` of a batch, where asked
    for."""
    wanted = [index for index, sequence in enumerate(sequences) if sequence.wants.answer is not None]
    if not wanted:
        return None
    if len(wanted) < len(sequences):
        rows = _on(logits.device, wanted)
        logits, tokens = logits[rows], tokens[rows]
    tops = tuple(sequences[index].wants.answer or 0 for index in wanted)
    return Scored(of_logits(logits, tokens, max(tops)), tuple(entries[index] for index in wanted), tops)


def _gated(inputs: Inputs) -> GatedBatch:
    """What gates may ask of a pass. What belongs to features that this engine does not have keeps its default."""
    return GatedBatch(
        phase=inputs.phase,
        policy=Policy.Disabled,
        rows=inputs.count,
        padded=inputs.count,
        requests=len(inputs.yields),
        input_logprobs=inputs.input_logprobs,
    )
