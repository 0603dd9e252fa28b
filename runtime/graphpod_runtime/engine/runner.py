"""The runner: owns model, KV cache and graphs; turns a batch into one forward pass and its next tokens.

A pass is launched and lands later. The loop decides what runs; the runner decides how: on a graph, or eagerly.
Every pass that lands counts twice, in places that do not know of each other: the choice of its graph counts the replay
or the fallback, a hook on the model's body counts passes that really ran eagerly.
"""

from collections.abc import Callable
from collections.abc import Sequence as List
from typing import Any

import torch
from torch import Tensor, nn

from graphpod_policy import EngineConfig, FallbackReason, Policy
from graphpod_runtime.attention.base import AttentionBackend
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.cache.host_tier import HostTier
from graphpod_runtime.cache.pages import PageAllocator
from graphpod_runtime.distributed.agreement import ALONE, Ranks
from graphpod_runtime.distributed.collectives import from_first_rank
from graphpod_runtime.engine.capture.debug import Mode
from graphpod_runtime.engine.forward.drafting.draft_model import DraftModel
from graphpod_runtime.engine.forward.drafting.drafting_head import DraftingHead
from graphpod_runtime.engine.forward.drafting.drafting_seats import DraftingSeats
from graphpod_runtime.engine.forward.drafting.verification import Verification
from graphpod_runtime.engine.forward.graph_choice import asked_of_gates, choices, dispatch
from graphpod_runtime.engine.forward.inputs import inputs_of
from graphpod_runtime.engine.forward.pass_in_flight import Chosen, Forwarded, Moment, PassInFlight, Ran
from graphpod_runtime.engine.forward.pooled_rows import of_chunks
from graphpod_runtime.engine.forward.sampling.logprobs import of_answers, of_prompts
from graphpod_runtime.engine.forward.sampling.masks import Masks
from graphpod_runtime.engine.forward.sampling.processors import History
from graphpod_runtime.engine.forward.sampling.sampler import Sampler, greedy, rows_at_once
from graphpod_runtime.engine.forward.seats import Seated
from graphpod_runtime.engine.memory_poisoning import Poison
from graphpod_runtime.engine.pass_copies import join
from graphpod_runtime.engine.pass_metrics import PassMetrics
from graphpod_runtime.engine.schedule.batch import Batch, DecodeBatch, PrefillBatch
from graphpod_runtime.engine.schedule.drafting import DraftsYielded
from graphpod_runtime.engine.schedule.yielded import Yielded
from graphpod_runtime.engine.speculation_metrics import SpeculationMetrics
from graphpod_runtime.engine.start.device_state import LoadModel
from graphpod_runtime.engine.start.started import Started
from graphpod_runtime.engine.start.starter import Starter
from graphpod_runtime.kernels.sampling.draw import drawer_for
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.wire.counters import Counters
from graphpod_runtime.wire.report import Report


class Runner:
    """One engine. `start` makes it Ready; before that only `counters` may be read."""

    pages: PageAllocator
    eos_ids: tuple[int, ...]
    host_tier: HostTier | None
    vocabulary: int
    """Rows of the model's embedding: token ids are below it."""
    _defers = False
    """Whether `choose` is called for every pass."""

    def __init__(
        self,
        config: EngineConfig,
        report: Callable[[Report], None],
        started_at: float | None = None,
        load: LoadModel = load_model,
        ranks: Ranks = ALONE,
    ) -> None:
        """`started_at`: time.time() when the process began, for the Import stage; None leaves that stage out."""
        self.counters = Counters()
        self._starter = Starter(config, report, self.counters, started_at, load, ranks)
        self._several = ranks.keeps_first_tokens
        self.config, self._backend = self._starter.config, self._starter.backend
        self.counters.start_at_zero(self._backend)
        self._code_runs = 0
        """How often the body has run since Ready."""
        self._poison: Poison | None = None
        self._draft_model: DraftModel | None = None
        self._head: DraftingHead | None = None

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
        width = self.config.feature_set().verify_width
        self._count = PassMetrics(self.counters, self._engine.ladders, self._backend, width).of
        self._choices = {phase: choices(ladder) for phase, ladder in self._engine.ladders.items()}
        self.pages = PageAllocator(self._engine.attention.cache.pages)
        self.eos_ids, self.vocabulary = self._engine.model.shape.eos_ids, self._engine.model.shape.vocab
        device = self._engine.device
        self._stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
        self._slot_tokens = self._engine.attention.cache.slot_tokens
        context, answers, stages = self.config.max_model_len, self.config.max_batch, self.config.features.pipeline
        assert context is not None, "a start has derived it"
        assert answers is not None, "a start has derived it"
        self._sampler = Sampler(drawer_for(device), device, self.eos_ids, rows_at_once(self.vocabulary, context))
        self._masks = Masks(answers, answers * width, self.vocabulary, self.eos_ids, device, self.counters, stages)
        self.host_tier, self.sleeper = self._engine.host_tier, self._engine.sleeper
        self._step = self._decode
        if isinstance(self._engine.seats, DraftingSeats):
            parts = self._engine.seats, self._sampler, self._slot_tokens, self._stream, self._run
            self._step = Verification(*parts).step
            self._speculation = SpeculationMetrics(self.counters, self.config.features)
            self._draft_model, self._head = self._engine.seats.draft_model, self._engine.seats.head
        if self._draft_model is not None:
            self._draft_model.pages = self.pages
            self._draft_model.budget = self.config.prefill_budget or self.config.prefill_chunk
        self._engine.model.body.register_forward_pre_hook(self._count_code_run)
        if Mode.Poison in self._engine.modes:
            engine = self._engine
            lengths = engine.seats.lengths if isinstance(engine.seats, DraftingSeats) else None
            passes, breaks = engine.passes.values(), engine.capturer.breaks
            self._poison = Poison(engine.attention, self.pages, passes, breaks, lengths, self._draft_attention)

    @property
    def ahead(self) -> bool:
        """Whether a pass may be launched before the one before it has landed."""
        return Mode.Lockstep not in self._engine.modes

    @property
    def _draft_attention(self) -> AttentionBackend | None:
        """Over the cache of what drafts, if it has one."""
        drafting = self._draft_model or self._head
        return None if drafting is None else drafting.attention

    @torch.no_grad()
    def launch(self, batch: Batch, given: List[int] | None = None) -> PassInFlight:
        """Puts the pass of `batch`, the next token of each of its sequences and the log-probabilities that were asked
        for in line on the device. Passes land in their order. Later ones go on from its tokens, or from those `given`.
        """
        self._join(batch)
        if self.pages.unclean or self.pages.unclean_drafts:
            self._clean_pages()
        if self._poison is not None:
            self._poison.spoil(batch)
        flight = PassInFlight(*(self._step if isinstance(batch, DecodeBatch) else self._prefill)(batch, given))
        if not (self._defers or flight.undecided.members.masked):
            flight.choose(self._chosen(flight.undecided))
        return flight

    def _join(self, batch: Batch) -> None:
        """Before `batch` is launched: its pages are as copies of the host tier leave them."""
        if self.host_tier is not None:
            join(self.host_tier, batch, self.config.page_size, self.pages.unclean, everything=self._poison is not None)

    @torch.no_grad()
    def choose(self, flight: PassInFlight) -> None:
        """Puts what chooses the tokens of a pass in line behind it, unless `launch` has. Grammars must have come as far
        as the pass has: every earlier pass of theirs has landed."""
        if flight.undecided is not None:
            flight.choose(self._chosen(flight.undecided))

    def _chosen(self, forwarded: Forwarded) -> Chosen:
        members, logits, chosen = forwarded.members, forwarded.logits, forwarded.chosen
        if not members.sequences:
            return Chosen(chosen, None, None)
        if members.masked:
            logits, chosen = self._masks.applied(members, logits, chosen)
        tokens, answers = members.tokens(logits, chosen, forwarded.positions, forwarded.history), None
        if members.masked and tokens is not chosen:
            # A draw says NOT_FINITE of every row without a greedy token.
            tokens = torch.where(chosen < 0, chosen, tokens)
        if self._several:
            # The first rank alone knows how requests choose.
            tokens = from_first_rank(tokens)
        kept, seats = tokens if forwarded.given is None else _on(tokens.device, forwarded.given), self._engine.seats
        seated = seats.keep(kept, forwarded.states) if isinstance(seats, DraftingSeats) else seats.keep(kept)
        if members.scored:
            answers = of_answers(members.sequences, members.scored, forwarded.entries, forwarded.logits, tokens)
        return Chosen(tokens, seated, answers)

    def land(self, flight: PassInFlight) -> Yielded:
        """What the pass yields; waits for the device."""
        yielded = flight.land()
        self._count(*flight.ran.kind)(flight.ran.launch_seconds, flight.device_seconds)
        if isinstance(yielded, DraftsYielded):
            self._speculation.landed(yielded)
        elif isinstance(flight.seated, Seated):
            self._engine.seats.landed(flight.seated, flight.tokens)
        if Mode.Seats in self._engine.modes:
            self._engine.seats.verify()
        return yielded

    def forward(self, batch: Batch) -> Yielded:
        """The pass of `batch` from its launch to its landing."""
        flight = self.launch(batch)
        self.choose(flight)
        return self.land(flight)

    def _decode(self, batch: DecodeBatch, given: List[int] | None) -> tuple[Ran, Forwarded]:
        """A step, whose graph has computed the greedy tokens."""
        inputs = self._engine.seats.step(batch)
        (logits, chosen, *_), ran = self._run(inputs)
        members, history = self._sampler.batch(batch.sequences), None
        if members.reading:
            history = History.of_step(self._slot_tokens, inputs, batch.ends, members.reading)
        ends_text = (True,) * len(batch.sequences)
        return ran, Forwarded(ends_text, inputs.yields, members, logits, chosen, inputs.positions, history, given)

    def _prefill(self, batch: PrefillBatch, given: List[int] | None) -> tuple[Ran, Forwarded]:
        """The chunks of prompts; few of their rows reach the head."""
        inputs = inputs_of(batch, self.config.page_size, self._engine.device)
        (hidden, *others), ran = self._run(inputs)
        states = others[0] if self._head is not None and others else hidden
        if self._draft_model is not None:
            self._draft_model.prefill(batch, inputs)
        elif self._head is not None:
            self._head.prefill(batch, inputs, states)
        ends = tuple(row >= 0 for row in inputs.yields)
        ending = [index for index, ends_text in enumerate(ends) if ends_text]
        logits, chosen, positions = hidden[:0], inputs.tokens[:0], inputs.positions[:0]
        members, history = self._sampler.empty, None
        sequences = tuple(batch.chunks[index].sequence for index in ending)
        if ending:
            rows = _on(hidden.device, [inputs.yields[index] for index in ending])
            logits = self._engine.model.head(hidden[rows])
            states = states[rows]
            chosen, positions = greedy(logits), inputs.positions[rows]
            self._engine.seats.seat(sequences, [batch.chunks[index].end for index in ending], new=True)
            members = self._sampler.batch(sequences)
            if members.reading:
                history = History.of_prompts(self._slot_tokens, sequences, members.reading)
        prompts = None
        if batch.scores_prompt:
            prompts = of_prompts(self._engine.model, batch, inputs.starts.tolist(), hidden)
        pooled = of_chunks(self._engine.model, batch, inputs.starts.tolist(), hidden) if batch.pools else None
        kept, own = given and [given[index] for index in ending], None if self._head is None else states
        return ran, Forwarded(ends, ending, members, logits, chosen, positions, history, kept, prompts, pooled, own)

    def _run(self, inputs: Inputs, began: Moment | None = None) -> tuple[tuple[Any, ...], Ran]:
        """One pass over `inputs`, which begins now or `began` before: its results, and how it ran."""
        engine, phase, count, code_runs = self._engine, inputs.phase, inputs.count, self._code_runs
        began = began or Moment(self._stream)
        choice, recompiled = self._choose(inputs), False
        if isinstance(choice, FallbackReason):
            uncompiled = self._uncompiled()
            engine.attention.plan(inputs)
            results, policy = engine.passes[phase].eager(inputs, engine.attention.run, count), Policy.Disabled
            recompiled = self._uncompiled() > uncompiled
        else:
            graphs = engine.graphs[phase]
            results, policy = graphs.replay(inputs, choice), graphs.policy
        seconds = began.host_seconds()
        return results, Ran(phase, policy, count, choice, recompiled, self._code_runs - code_runs, began, seconds)

    def _choose(self, inputs: Inputs) -> int | FallbackReason:
        """The size of the graph that runs a pass, or why none does."""
        of_rows = self._choices[inputs.phase]
        if inputs.input_logprobs or inputs.count >= len(of_rows):
            return dispatch(self._engine.ladders[inputs.phase], asked_of_gates(inputs))
        return of_rows[inputs.count]

    def _uncompiled(self) -> int:
        """How often compiled code had none for its arguments, and ran as it was written."""
        return 0 if self._engine.cache is None else self._engine.cache.uncompiled

    def _clean_pages(self) -> None:
        """Zeroes the pages that may hold NaN before a sequence writes to them: attention over NaN is NaN even where it
        is masked."""
        cache = self._engine.attention.cache
        loaded, unclean = sorted(self.pages.unclean_drafts), self.pages.take_unclean()
        self.pages.unclean_drafts.clear()
        if unclean:
            cache.fill(_on(cache.device, unclean), 0.0)
        if (draft := self._draft_attention) is not None:
            draft.cache.fill(_on(cache.device, [*unclean, *loaded]), 0.0)

    def _count_code_run(self, body: nn.Module, arguments: object) -> None:
        """Hook on the body. It does not ask what was chosen: a replay that runs the model's code counts, too."""
        self._code_runs += 1


def _on(device: torch.device, rows: List[int]) -> Tensor:
    """`rows` on `device`. The host does not wait for the device: what follows is in line while it computes."""
    return torch.tensor(rows).to(device, non_blocking=True)
