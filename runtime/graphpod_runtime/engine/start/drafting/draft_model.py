"""The draft model or head of a start: its weights, its cache under the target's pages, the graphs of its steps.

Its graphs are captured twice, as those of decode are: once to learn what they cost, then over the final caches. One
that cannot be captured, or is wrong, costs no answer: under `onCaptureFailure: Degrade` drafts are then computed
eagerly, which is counted and reported.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from graphpod_policy import (
    Backend,
    EngineConfig,
    ExitCode,
    FallbackReason,
    OnCaptureFailure,
    Phase,
    Plan,
    Policy,
)
from graphpod_policy.start.can_start import draft_misfit
from graphpod_policy.start.footprint import most_drafted, pages_of
from graphpod_runtime.attention.base import AttentionBackend
from graphpod_runtime.base.errors import CaptureOutOfMemory, CompileFailed, GraphError, SelfCheckFailed
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.shapes import dtype_of
from graphpod_runtime.cache.kv import KvCache, page_bytes
from graphpod_runtime.compiled.cache import CompileCache
from graphpod_runtime.distributed.agreement import Ranks, computing_together
from graphpod_runtime.distributed.collectives import silent
from graphpod_runtime.engine.capture.capturer import no_collector
from graphpod_runtime.engine.capture.debug import DRAFT, FaultKind, Mode, Switches
from graphpod_runtime.engine.capture.phase_capture import timed
from graphpod_runtime.engine.forward.drafting.draft_model import DraftModel
from graphpod_runtime.engine.forward.drafting.draft_steps import DraftSteps
from graphpod_runtime.engine.forward.drafting.drafting_head import DraftingHead
from graphpod_runtime.engine.forward.drafting.drafting_seats import DraftingSeats
from graphpod_runtime.engine.forward.drafting.head_steps import HeadSteps
from graphpod_runtime.engine.forward.drafting.proposer import OfFirstRank
from graphpod_runtime.engine.forward.drafting.tree_steps import TreeSteps
from graphpod_runtime.engine.forward.inputs import dummy_inputs
from graphpod_runtime.engine.start.device_state import DeviceState, attention_of, new_cache
from graphpod_runtime.engine.start.drafting.vocabulary import first_difference
from graphpod_runtime.engine.start.limits.draft_limit import PAYS_FOR_A_MODEL, draft_limit
from graphpod_runtime.engine.start.limits.prefill_budget import seconds_of
from graphpod_runtime.engine.start.resolver_facts import draft_facts, model_facts
from graphpod_runtime.graphs.capture_errors import CaptureSite, located
from graphpod_runtime.graphs.captured_graphs import CapturedGraph
from graphpod_runtime.graphs.full import capture_full
from graphpod_runtime.graphs.segments.addresses import Addresses
from graphpod_runtime.graphs.segments.segment import Pool
from graphpod_runtime.kernels.rows.draft_rows import LENGTH, PAGES, ROOM, TOKEN
from graphpod_runtime.models.heads.draft_head import DraftHead
from graphpod_runtime.models.model import Model
from graphpod_runtime.wire.counters import Counters

CHECKED_PAGES = 3
"""Of one sequence of a checked pass, at most."""


class DraftStart:
    """Makes `model`, a Proposer, of weights that are loaded."""

    def __init__(
        self,
        config: EngineConfig,
        weights: Model | DraftHead,
        device_state: DeviceState,
        backend: Backend,
        counters: Counters,
        switches: Switches,
        ranks: Ranks,
    ) -> None:
        """StartFailure where `weights` do not draft for the model of `device_state`."""
        target = replace(model_facts(device_state.model.shape), draft=draft_facts(weights))
        if misfit := draft_misfit(config, target):
            raise StartFailure.by(misfit)
        folders = Path(config.model.path), Path(config.features.speculative_draft or "")
        if not isinstance(weights, DraftHead) and (difference := first_difference(*folders)):
            raise StartFailure(ExitCode.ModelUnsupported, f"spec.engine.speculative.draftModel: {difference}")
        seats = device_state.seats
        assert isinstance(seats, DraftingSeats)
        assert config.max_batch is not None, "a start has derived it"
        self._config, self._weights, self._device_state = config, weights, device_state
        self._backend, self._counters, self._switches, self._ranks = backend, counters, switches, ranks
        self._addresses = Addresses()
        self._addresses.register_module(weights.module())
        if isinstance(weights, DraftHead):
            # It has embedding and output matrix of the model.
            self._addresses.register_module(device_state.model.module(), "model.")
        self._seats = seats
        sequences = most_drafted(config)
        attention: AttentionBackend = attention_of(
            config, device_state.place.device, weights.shape, weights.sinks
        ).backend
        attention.bind(self.new_cache(1))
        count, drafting = config.feature_set().verify_width - 1, (seats.state, lambda: seats.slot_tokens())
        self.model: DraftModel | DraftingHead
        self._steps: DraftSteps | HeadSteps
        if isinstance(weights, DraftHead):
            dtype, asked = dtype_of(config.element), config.feature_set()
            parts = weights, attention, asked.speculative_steps, sequences, *drafting, dtype
            if asked.draft_trees:
                steps: HeadSteps = TreeSteps(*parts, branches=asked.speculative_topk, nodes=count)
            else:
                steps = HeadSteps(*parts)
            self._steps, self.model = steps, DraftingHead(attention, steps, weights, dtype)
            seats.proposer = seats.head = self.model
        else:
            chain = DraftSteps(weights, attention, count, sequences, *drafting)
            self._steps = chain
            self.model = DraftModel(attention, chain, weights, config.prefill_chunk, config.page_size)
            seats.proposer = seats.draft_model = self.model
        # A head computes with other ranks.
        self._running = partial(computing_together, ranks) if isinstance(weights, DraftHead) else ranks.agreed
        self._pool: Pool | None = None
        self._because: str | None = None
        """Why drafts have no graphs, if they should have some, or fewer."""
        self._most = sequences
        """Of a graph."""

    @property
    def name(self) -> str | None:
        """Of its folder; None for layers of the model's own checkpoint."""
        folder = self._config.features.speculative_draft
        return None if folder is None else Path(folder).name

    @property
    def sequences(self) -> int:
        """Most of one pass."""
        return self._steps.sequences

    @property
    def page_bytes(self) -> int:
        """Of its cache."""
        cache = self.model.attention.cache
        return page_bytes(self._weights.shape, cache.page_size, cache.keys.dtype)

    def new_cache(self, pages: int) -> KvCache:
        """Of `pages` pages, scratch included."""
        return new_cache(self._config, self._weights, self._device_state.device, pages)

    def bind(self, cache: KvCache) -> None:
        """The cache that sequences read and write."""
        self.model.attention.bind(cache)

    def read_chunk(self) -> None:
        """Reads the largest chunk of a prompt, onto the scratch page."""
        self._read(self._config.prefill_chunk)

    def reading_seconds(self, tokens: int) -> float:
        """Of so many of a prompt."""
        return seconds_of(partial(self._read, tokens), self._device_state.place.wait)

    def compile(self, cache: CompileCache) -> str | None:
        """The halves of its layers, where they can be compiled: a pass of one row runs each. Why they cannot;
        StartFailure then where nothing may degrade."""
        self._weights.compile_halves(cache)
        try:
            self._run(1)
        except CompileFailed as error:
            self._refuse(error, "spec.graph.compile: None, or spec.graph.onCaptureFailure: Degrade to draft uncompiled")
            self._weights.compile_halves(None)
            return f"the draft model's layers run uncompiled: {error}"
        return None

    def measured(self, plan: Plan) -> int:
        """Bytes that the graphs take, which are captured and dropped."""
        self.capture(plan)
        taken = 0 if self._pool is None else self._pool.pool_bytes() + self._pool.driver_bytes()
        self._drop()
        return taken

    def capture(self, plan: Plan) -> str | None:
        """The graphs for batches of the decode sizes of `plan`, as far as there can be drafts; where decode has no
        graphs, drafts have none. The smaller half where memory runs out, again and again. Why there are fewer than
        there should be; StartFailure where nothing may degrade and none can be captured."""
        decode = plan.phases[Phase.Decode]
        wanted = [] if decode.planned is Policy.Disabled else self._sizes(decode.sizes)
        if {Mode.Eager, Mode.OneBreak} & self._switches.modes:
            self.model.eagerly = FallbackReason.ForcedEager
            return None
        if not wanted:
            return self._because
        for name, tensor in (*self._steps.tensors(), *self._caches()):
            self._addresses.register(f"{DRAFT}.{name}", tensor)
        while True:
            try:
                self._capture(wanted)
            except GraphError as error:
                self._drop()
                self._failed(error)
                if not isinstance(error, CaptureOutOfMemory) or len(wanted) == 1:
                    return self._degrade(error)
                wanted = wanted[len(wanted) - len(wanted) // 2 :]
                self._most = wanted[0]
                self._because = f"drafts of more than {self._most} requests are computed without graphs: {error}"
            else:
                return self._because

    def _capture(self, wanted: list[int]) -> None:
        pool = self._pool = self._device_state.place.pool(self._addresses)
        labels = {"phase": DRAFT, "policy": Policy.Full.value, "backend": self._backend.value}
        with no_collector(), pool.capturing():
            for size in dict.fromkeys((wanted[0], wanted[-1])):
                self._warm(size, pool)
            for size in wanted:
                try:
                    with timed() as clock, self._ranks.agreed(), silent():
                        self.model.graphs[size] = self._captured(size, pool)
                finally:
                    self._counters.observe("graphpod_graph_capture_duration_seconds", clock.seconds, **labels)
                self._counters.add("graphpod_graph_captures_total", result="ok", **labels)

    def _failed(self, error: GraphError) -> None:
        """Counts a capture that failed."""
        labels = {"phase": DRAFT, "backend": self._backend.value}
        self._counters.add("graphpod_graph_captures_total", result="error", policy=Policy.Full.value, **labels)
        self._counters.add("graphpod_graph_capture_failures_total", reason=error.rule, **labels)

    def check(self) -> str | None:
        """Replays every graph over sequences with a past, and compares drafts, keys and values with those of the code
        that it captured, bit for bit. What is wrong, if anything; StartFailure then where nothing may degrade."""
        labels = {"phase": DRAFT, "policy": Policy.Full.value, "backend": self._backend.value}
        try:
            for size in sorted(self.model.graphs):
                with self._ranks.agreed():
                    self._check(size)
                self._counters.add("graphpod_graph_selfchecks_total", result="passed", **labels)
        except SelfCheckFailed as error:
            self._counters.add("graphpod_graph_selfchecks_total", result="failed", **labels)
            self._counters.add(
                "graphpod_graph_capture_failures_total", phase=DRAFT, backend=self._backend.value, reason=error.rule
            )
            return self._degrade(error)
        finally:
            self._forget()
        return None

    def limit(
        self,
        sizes: Iterable[int],
        width: int,
        seconds: Callable[[int], float],
        slowest: Callable[[float], float],
    ) -> int:
        """The largest batch for which it pays, as `draft_limit`, by the `slowest` of all ranks."""

        def drafting(sequences: int) -> float:
            seats, slot_tokens = self._padding(sequences), self._seats.slot_tokens()
            run = partial(self.model.propose, self._seats.state, seats, slot_tokens, 1)
            return slowest(seconds_of(run, self._device_state.place.wait))

        fitting = [size for size in sizes if size <= self.sequences * width]
        return draft_limit(fitting, width, seconds, PAYS_FOR_A_MODEL, drafting)

    def ready(self) -> None:
        """From now on passes are counted. Several ranks verify the first one's drafts. All draft by a head, of which
        each has a part; by a draft model the first one alone, and the others' memory for it is free again."""
        if self._ranks.count > 1:
            drafts = self._ranks.rank == 0 or self._seats.head is not None
            self._seats.proposer = OfFirstRank(self._steps.count, self.model if drafts else None)
            if not drafts:
                self._seats.draft_model = None
                self._drop()
                return
        replays = self._counters.adder(
            "graphpod_graph_replays_total", phase=DRAFT, policy=Policy.Full.value, backend=self._backend.value
        )

        def counted(ran: int | FallbackReason) -> None:
            if isinstance(ran, FallbackReason):
                self._counters.add(
                    "graphpod_graph_fallbacks_total", phase=DRAFT, reason=ran.value, backend=self._backend.value
                )
            else:
                replays()

        self.model.counted = counted
        if self._pool is not None and Mode.Addresses in self._switches.modes:
            self.model.verify = self._pool.verify

    def _sizes(self, sizes: Iterable[int]) -> list[int]:
        """Those that passes with drafts can need, largest first."""
        ascending = sorted(sizes)
        below = [size for size in ascending if size <= self.sequences]
        beyond = [size for size in ascending if size > self.sequences]
        if beyond and (not below or below[-1] < self.sequences):
            below.append(self.sequences)
        return [size for size in below[::-1] if size <= self._most]

    def _captured(self, size: int, pool: Pool) -> CapturedGraph:
        self._steps.load(self._padding(size), size)
        code = self._switches.failing(self._steps.code(size), DRAFT, size)
        return capture_full(code, self._site(size), self.model.attention.run, pool)

    def _warm(self, size: int, pool: Pool) -> None:
        """Runs the code of a size once. Fails as its capture would."""
        with self._running():
            try:
                pool.warm(partial(self._run, size))
            except Exception as error:
                raise located(error, f"{self._site(size)}, before its capture") from error

    def _site(self, size: int) -> CaptureSite:
        return CaptureSite(self._config.model.name, DRAFT, size)

    def _run(self, size: int) -> None:
        """The code of a size, uncaptured, over seats of padding."""
        self._steps.load(self._padding(size), size)
        self._steps.code(size)(self.model.attention.run)

    def _read(self, tokens: int) -> None:
        self.model.read(dummy_inputs(Phase.Prefill, tokens, self._config.page_size, self._device_state.device))

    def _padding(self, count: int) -> torch.Tensor:
        return torch.full((count,), len(self._seats.state) - 1, device=self._seats.state.device)

    def _caches(self) -> Iterable[tuple[str, torch.Tensor]]:
        cache = self.model.attention.cache
        return ("keys", cache.keys), ("values", cache.values)

    def _check(self, size: int) -> None:
        cache, state = self.model.attention.cache, self._seats.state
        device, page_size = state.device, cache.page_size
        generator = torch.Generator().manual_seed(size)
        count = min(size, len(state) - 1, cache.pages - 1)
        each = max(1, min(CHECKED_PAGES, (cache.pages - 1) // count))
        vocab, drafts = self._weights.shape.vocab, self._steps.count
        each = min(each, pages_of(self._config, self._config.max_model_len or page_size))
        rows = torch.zeros(count, state.shape[1], dtype=torch.int64)
        rows[:, TOKEN] = torch.randint(vocab, (count,), generator=generator)
        rows[:, LENGTH] = torch.randint(1, each * page_size + 1, (count,), generator=generator)
        rows[:, ROOM] = each * page_size
        pages = torch.arange(1, count * each + 1)
        rows[:, PAGES : PAGES + each] = pages.view(count, each)
        state[:count] = rows.to(device)
        if isinstance(self._steps, HeadSteps):
            self._steps.draw(count, generator)
        texts = torch.randint(vocab, (len(pages), page_size), generator=generator, dtype=torch.int32)
        self._seats.slot_tokens()[pages.to(device)] = texts.to(device)
        seats, own = torch.arange(count, device=device), pages.to(device)

        def run(code: Callable[[], object]) -> tuple[torch.Tensor, object]:
            cache.draw(own, size)
            self._steps.load(seats, size)
            self._steps.drafts(size).fill_(-1)
            code()
            return self._steps.drafts(count).clone(), cache.take(own)

        replayed, written = run(lambda: self.model.graphs[size].replay(count))
        if self._switches.fires(FaultKind.SelfCheck, DRAFT, size):
            replayed += 1
        expected, _ = run(lambda: self._steps.code(size)(self.model.attention.run))
        if not torch.equal(replayed, expected):
            raise SelfCheckFailed(f"{DRAFT} size {size}: the replay gave other than the {drafts} drafts of its code")
        if not cache.holds(own, written):
            raise SelfCheckFailed(f"{DRAFT} size {size}: the replay wrote other KV pages or values than its code")

    def _forget(self) -> None:
        """What the checks wrote."""
        if isinstance(self._steps, HeadSteps):
            self._steps.clear()
        self._seats.state.zero_()
        self._seats.state[-1, LENGTH] = 1
        self._seats.slot_tokens().zero_()
        self.model.attention.cache.clear()

    def _degrade(self, error: GraphError) -> str:
        """Drafts are computed eagerly. StartFailure where nothing may degrade."""
        self._drop()
        self._refuse(error, "spec.graph.onCaptureFailure: Degrade to draft without graphs")
        self._most = 0
        self.model.eagerly = FallbackReason.NotCaptured
        self._because = f"drafts are computed without graphs: {error}"
        return self._because

    def _refuse(self, error: GraphError, step: str) -> None:
        """StartFailure where nothing may degrade; `step`: what to set."""
        if self._config.graph.on_capture_failure is OnCaptureFailure.Fail:
            raise StartFailure(error.code, f"{error}; set {step}") from error

    def _drop(self) -> None:
        self.model.graphs.clear()
        self._pool = None
