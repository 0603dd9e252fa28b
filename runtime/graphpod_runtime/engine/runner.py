"""The runner: owns model, KV cache and graphs; turns a batch into one forward pass and its next tokens.

It never sees a queue. The loop decides what runs; the runner decides how: on a graph, or eagerly for one reason.
Every pass counts twice, in places that do not know of each other: `dispatch`'s answer counts the replay or the
fallback, a hook on the model's body counts passes that really ran eagerly.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from graphpod_policy import Backend, EngineConfig, FallbackReason, Phase, Policy
from graphpod_policy import Batch as GatedBatch
from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.engine.capture.debug import Mode
from graphpod_runtime.engine.forward.dispatch import dispatch
from graphpod_runtime.engine.forward.inputs import Inputs, inputs_of
from graphpod_runtime.engine.forward.logprobs import of_hidden, of_logits
from graphpod_runtime.engine.forward.sampler import Sampler, greedy
from graphpod_runtime.engine.poison import Poison
from graphpod_runtime.engine.schedule.sequence import Batch, DecodeBatch, PrefillBatch, Sequence, Yielded
from graphpod_runtime.engine.start.device_state import LoadModel
from graphpod_runtime.engine.start.starter import Started, Starter
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.wire.counters import Counters
from graphpod_runtime.wire.messages import Logprob
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
        self.pages = PageAllocator(self._engine.attention.cache.pages)
        self.eos_ids, self.vocabulary = self._engine.model.shape.eos_ids, self._engine.model.shape.vocab
        self._sampler = Sampler(self._engine.device)
        self._engine.model.body.register_forward_pre_hook(self._count_eager_pass)
        if Mode.Poison in self._engine.modes:
            engine = self._engine
            self._poison = Poison(engine.attention, self.pages, engine.passes.values(), engine.capturer.breaks)

    @torch.no_grad()
    def forward(self, batch: Batch) -> Yielded:
        """The next token of each sequence of `batch`, and the log-probabilities that were asked for."""
        self._clean_pages()
        if self._poison is not None:
            self._poison.spoil(batch)
        inputs = inputs_of(batch, self.config.page_size, self._engine.device)
        self._running = inputs.phase
        try:
            results = self._run(inputs)
        finally:
            self._running = None
        if isinstance(batch, DecodeBatch):
            logits, chosen, *_ = results
            tokens = self._sample(batch.sequences, logits, chosen, inputs.positions)
            return Yielded(tokens, _answers(batch.sequences, logits, tokens))
        return self._tail(batch, inputs, results[0])

    def _tail(self, batch: PrefillBatch, inputs: Inputs, hidden: Tensor) -> Yielded:
        """What the rows of a prefill pass, hidden [tokens, hidden], yield: few of them reach the head."""
        ending = [index for index, row in enumerate(inputs.yields) if row >= 0]
        tokens = [-1] * len(inputs.yields)
        answers: tuple[Logprob | None, ...] = ()
        if ending:
            rows = _on(hidden.device, [inputs.yields[index] for index in ending])
            logits = self._engine.model.head(hidden[rows])
            sequences = tuple(batch.chunks[index].sequence for index in ending)
            drawn = self._sample(sequences, logits, greedy(logits), inputs.positions[rows])
            for index, token in zip(ending, drawn, strict=True):
                tokens[index] = token
            if found := _answers(sequences, logits, drawn):
                by_chunk = dict(zip(ending, found, strict=True))
                answers = tuple(by_chunk.get(index) for index in range(len(tokens)))
        return Yielded(tokens, answers, self._prompts(batch, inputs, hidden) if batch.scores_prompt else ())

    def _prompts(self, batch: PrefillBatch, inputs: Inputs, hidden: Tensor) -> tuple[tuple[Logprob, ...], ...]:
        """The log-probabilities of the prompt tokens that each chunk is to score."""
        starts = inputs.metadata.starts.tolist()
        rows = [
            starts[index] + position - 1 - chunk.start
            for index, chunk in enumerate(batch.chunks)
            for position in chunk.scored
        ]
        following = [chunk.sequence.tokens[position] for chunk in batch.chunks for position in chunk.scored]
        top = max(chunk.sequence.wants.prompt or 0 for chunk in batch.chunks)
        scored = iter(of_hidden(self._engine.model, hidden[_on(hidden.device, rows)], following, top))
        return tuple(
            tuple(_cut(next(scored), chunk.sequence.wants.prompt) for _ in chunk.scored) for chunk in batch.chunks
        )

    def _run(self, inputs: Inputs) -> tuple[Any, ...]:
        """One pass over `inputs`, on a graph where one fits."""
        engine, phase = self._engine, inputs.phase
        count, label = self.counters.add, phase.value
        backend = self._backend.value
        choice = dispatch(engine.ladders[phase], _gated(inputs))
        if isinstance(choice, FallbackReason):
            before = self._uncompiled()
            engine.attention.plan(inputs.metadata)
            eager = engine.passes[phase].eager(inputs, engine.attention.run, inputs.count)
            reason = choice if self._uncompiled() == before else FallbackReason.Recompiled
            count("graphpod_graph_fallbacks_total", phase=label, reason=reason.value, backend=backend)
            count("graphpod_forward_passes_total", phase=label, policy=Policy.Disabled.value)
            return eager
        graphs = engine.graphs[phase]
        results = graphs.replay(inputs, choice)
        policy = graphs.policy.value
        count("graphpod_graph_replays_total", phase=label, policy=policy, backend=backend)
        count("graphpod_forward_passes_total", phase=label, policy=policy)
        count("graphpod_graph_tokens_total", inputs.count, phase=label, kind="real", backend=backend)
        count("graphpod_graph_tokens_total", choice - inputs.count, phase=label, kind="padding", backend=backend)
        return results

    def _uncompiled(self) -> int:
        """How often compiled code had none for its arguments, and ran as it was written."""
        return 0 if self._engine.cache is None else self._engine.cache.uncompiled

    def _sample(self, sequences: tuple[Sequence, ...], logits: Tensor, chosen: Tensor, positions: Tensor) -> list[int]:
        """As Sampler.tokens. The copy of the tokens is the one time that the host waits for the device."""
        return self._sampler.tokens(sequences, logits, chosen, positions).tolist()

    def _clean_pages(self) -> None:
        """Zeroes the pages that may hold NaN before a sequence writes to them: attention over NaN is NaN even where it
        is masked."""
        if pages := self.pages.take_unclean():
            cache = self._engine.attention.cache
            cache.fill(_on(cache.device, pages), 0.0)

    def _count_eager_pass(self, body: nn.Module, arguments: object) -> None:
        """Hook on the body. It does not ask what was dispatched: a replay that runs the model's code counts, too."""
        if self._running is not None:
            self.counters.add("graphpod_eager_passes_total", phase=self._running.value)


def _on(device: torch.device, rows: list[int]) -> Tensor:
    """`rows` on `device`. The host does not wait for the device: what follows is in line while it computes."""
    return torch.tensor(rows).to(device, non_blocking=True)


def _answers(sequences: tuple[Sequence, ...], logits: Tensor, tokens: list[int]) -> tuple[Logprob | None, ...]:
    """Log-probabilities of `tokens` [rows], drawn from logits [rows, vocab], where asked for; empty if nowhere. A row
    that gave no token has none."""
    wanted = [
        index for index, sequence in enumerate(sequences) if sequence.wants.answer is not None and tokens[index] >= 0
    ]
    if not wanted:
        return ()
    top = max(sequences[index].wants.answer or 0 for index in wanted)
    rows = logits if len(wanted) == len(sequences) else logits[_on(logits.device, wanted)]
    found = dict(zip(wanted, of_logits(rows, [tokens[index] for index in wanted], top), strict=True))
    return tuple(
        _cut(found[index], sequence.wants.answer) if index in found else None
        for index, sequence in enumerate(sequences)
    )


def _cut(logprob: Logprob, top: int | None) -> Logprob:
    """With as many alternatives as this request asked for; another of the batch may have asked for more."""
    return logprob if len(logprob.top) == top else replace(logprob, top=logprob.top[:top])


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
