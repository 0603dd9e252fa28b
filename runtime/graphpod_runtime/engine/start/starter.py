"""From a configuration to a Ready engine.

The order is a chain of needs. Weights first; then static buffers, because graphs freeze their addresses; then
prefill graphs, captured for real against a one-page scratch cache (their breaks fetch the cache when they run, so a
later cache serves them too); then the decode ladder, captured only to learn what it costs, and dropped: a full
decode graph freezes the cache's address, so it cannot be kept before the cache exists. What is then free, less the
measured peak of an eager pass, is the KV cache. Decode is captured again at its final address, every graph is
checked, and only then is the engine Ready.

What lies on the device is `device_state.py`, what a failure leads to `degrade.py`; how a policy captures is
`forward/graph_policies.py`.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from graphpod_policy import (
    Backend,
    CompileMode,
    EngineConfig,
    ExitCode,
    Facts,
    Phase,
    Plan,
    can_start,
    refine,
    settled,
)
from graphpod_policy.limits import least_context
from graphpod_policy.model.stages import stage_layers
from graphpod_policy.resolution.resolve import chunk_there
from graphpod_policy.start.can_start import context_too_long, policy_refused
from graphpod_policy.start.footprint import largest_sizes
from graphpod_policy.start.stage_limits import stage_limits
from graphpod_runtime.base.errors import CompileFailed, DeviceFailed
from graphpod_runtime.base.failure import RankFailed, StartFailure
from graphpod_runtime.base.known_model import model_of
from graphpod_runtime.cache.cells import quantises
from graphpod_runtime.cache.kv import KvCache, cache_dtype
from graphpod_runtime.compiled.cache import CompileCache
from graphpod_runtime.compiled.cache_folder import folder_of
from graphpod_runtime.distributed.agreement import ALONE, Ranks, computing_together
from graphpod_runtime.distributed.collectives import working_alike
from graphpod_runtime.engine.capture.capturer import Capturer
from graphpod_runtime.engine.capture.debug import ACCEPTANCE, DEBUG, FaultKind, Mode, Switches
from graphpod_runtime.engine.forward.graph_choice import Ladder, gates_of
from graphpod_runtime.engine.forward.inputs import dummy_inputs
from graphpod_runtime.engine.forward.sampling.logprobs import of_hidden, rows_at_once
from graphpod_runtime.engine.start import fulfilled_duties, kv_sizing
from graphpod_runtime.engine.start.degrade import DegradingCapture
from graphpod_runtime.engine.start.device import place_of, require_alike
from graphpod_runtime.engine.start.device_state import DeviceState, LoadModel, attention_of, weights_bytes
from graphpod_runtime.engine.start.drafting.draft_model import DraftStart
from graphpod_runtime.engine.start.drafting.draft_weights import weights_of
from graphpod_runtime.engine.start.drafting.scripted_drafts import script
from graphpod_runtime.engine.start.host_cache import host_tier, page_identity
from graphpod_runtime.engine.start.limits import derived_limits
from graphpod_runtime.engine.start.measured_limits import MeasuredLimits
from graphpod_runtime.engine.start.node import node_of, threads_of
from graphpod_runtime.engine.start.rehearsal import during_load
from graphpod_runtime.engine.start.rehearsal.sampling import rehearsed
from graphpod_runtime.engine.start.resolver_facts import facts_of, known_of, model_facts
from graphpod_runtime.engine.start.sleeping import Sleeping
from graphpod_runtime.engine.start.started import Started
from graphpod_runtime.models.heads.draft_head import DraftHead
from graphpod_runtime.models.kv_scales import warning_of
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.models.model import Model
from graphpod_runtime.wire.counters import Counters
from graphpod_runtime.wire.report import (
    Attention,
    PhaseReport,
    RankReport,
    Report,
    ServedDrafts,
    ServedHostCache,
    StartStage,
    State,
)

logger = logging.getLogger("graphpod.engine")

ALIVE_SECONDS = 1.0
"""Between two reports of the same stage and size, at least."""


class Starter:
    """One start. It reports after every stage and every captured size. `config` is the given one with the chunk that
    the engine's own plan allows, once Ready with what it leaves to the pod (Auto) derived.
    """

    def __init__(
        self,
        config: EngineConfig,
        report: Callable[[Report], None],
        counters: Counters,
        started_at: float | None,
        load: LoadModel = load_model,
        ranks: Ranks = ALONE,
    ) -> None:
        self.counters = counters
        self._started_at = started_at
        self._send = report
        self._reported = 0.0
        """When it was reported last (time.monotonic)."""
        self._read_model = load
        # Each of several ranks loads the whole draft model: the first one drafts.
        self._read_draft = load if ranks.count == 1 else load_model
        self._ranks = ranks
        self._compile_cache: CompileCache | None = None
        # The engine's own resolution starts from the operator's plan as an explicit request.
        self._plan: Plan = config.resolved()
        self.config = replace(config, prefill_chunk=self._plan.prefill_chunk)
        self.report = Report(
            backend=self._plan.backend,
            phases={
                phase: PhaseReport(
                    requested=config.phase(phase).requested,
                    planned=config.phase(phase).planned,
                    effective=self._plan.phases[phase].planned,
                    planned_sizes=len(config.phase(phase).sizes),
                )
                for phase in Phase
            },
            decisions=self._plan.decisions,
            page_size=config.page_size,
        )

    @property
    def backend(self) -> Backend:
        """What graphs are captured by."""
        return self._plan.backend

    def run(self) -> Started:
        """A Ready engine, or StartFailure after a report that says Failed. RankFailed without one: if another rank is
        the cause, the stage in which this one waited says what failed."""
        try:
            with torch.no_grad():
                return self._run()
        except DeviceFailed as error:
            failure = StartFailure(error.code, str(error))
            failure.__cause__ = error
        except RankFailed:
            raise
        except StartFailure as error:
            failure = error
        self.report.state = State.Failed
        self.report.failure = (failure.reason, failure.message)
        self._tell()
        raise failure

    def _run(self) -> Started:
        asked, report = self.config, self.report
        if self._started_at is not None:
            report.stages[StartStage.Import] = time.time() - self._started_at
        self._tell()
        model_there = model_of(Path(asked.model.path), asked.features)
        gpu = self._ranks.rank % asked.features.ranks_of_node
        node = node_of(asked, model_there, gpu)
        if self._ranks.count > 1 and node.capability is not None:
            require_alike(self._ranks, node.capability, torch.cuda.get_device_name(gpu))
        if obstacles := can_start(asked, self._plan, model_there, node):
            raise StartFailure.by(*obstacles)
        asked, unusual = settled(asked, model_there, node)
        self.config = asked
        self._warn(unusual)
        switches = Switches.read(rank=self._ranks.rank)
        if self._ranks.count > 1 and (what := _of_one_rank(switches)):
            raise StartFailure(ExitCode.SettingInvalid, what)
        if (threads := threads_of(asked)) is not None:
            torch.set_num_threads(threads)
        place = place_of(asked.features.device, self._ranks, asked.features.ranks_of_node)
        compiles = self._plan.compile is not CompileMode.Nothing
        steps = during_load.steps_of(asked, place, model_there, self._ranks, compiles)
        limit = stage_limits(self._plan)[State.Loading]
        with self._stage(StartStage.Load), during_load.done_during(steps, place.device, limit, self._alive):
            sleeping = Sleeping(asked, place, self._read_model, self._alive)
            model = sleeping.model
            self._warn(self._unscaled(model))
            draft_weights = weights_of(asked, place, model, self._read_draft, self._alive)
            if obstacles := tuple(context_too_long(asked, model_facts(model.shape))):
                # Known for certain now: a library's module may count positions otherwise than config.json says.
                raise StartFailure.by(*obstacles)
            report.vocabulary, report.weights_bytes = model.shape.vocab, weights_bytes(model)
            if (stage := model.shape.stage) is not None:
                report.pipeline_layers = stage_layers(stage.whole.layers, stage.count)
            if draft_weights is not None:
                report.weights_bytes += weights_bytes(draft_weights)
                if unscaled := self._unscaled(draft_weights):
                    self._warn(f"spec.engine.speculative.draftModel: {unscaled}")
            report.weights = str(model.shape.scheme or asked.element)
        with self._stage(StartStage.Buffers):
            chosen = attention_of(asked, place.device, model.shape, model.sinks)
            known = known_of(model.shape, place, chosen, draft_weights)
            there = refine(self._plan, known)
            config = replace(derived_limits.widest(asked, known, there), prefill_chunk=chunk_there(self._plan, known))
            device_state = DeviceState.made(config, place, model, chosen, derived_limits.rows(config, there))
            report.attention = Attention(device_state.attention.name, device_state.attention_because)
            self._warn(script(switches.acceptance, device_state))
            draft = None
            if draft_weights is not None:
                drafting = self._plan.backend, self.counters, switches, self._ranks
                draft = DraftStart(config, draft_weights, device_state, *drafting)
            plan = self._refined(facts_of(asked, device_state, known))
            config = replace(config, max_batch=derived_limits.batch(asked, known, plan))
        cache = None
        if plan.compile is not CompileMode.Nothing:
            ready, together = partial(self._compiled, switches), partial(computing_together, self._ranks)
            alike = partial(working_alike, self._ranks)
            cache = CompileCache(folder_of(), device_state.device, ready, alike, together, self._ranks.most)
            self._compile_cache = cache
        capturer = Capturer(
            model=config.model.name,
            backend=plan.backend,
            attention=device_state.attention,
            breaks=device_state.breaks,
            piecewise=device_state.piecewise(cache),
            page_size=config.page_size,
            counters=self.counters,
            switches=switches,
            new_pool=device_state.new_pool,
            passed=self._alive,
            ranks=self._ranks,
            whole=device_state.whole_passes(config.page_size) if Mode.OneBreak in switches.modes else {},
        )
        captures = DegradingCapture(config, plan, device_state, capturer, self.counters, switches, report, self._tell)
        if cache is not None:
            with self._stage(StartStage.Compile):
                captures.compile(cache)
                if draft is not None and captures.plan.compile is not CompileMode.Nothing:
                    self._warn(draft.compile(cache))
        self._enter(State.Capturing)
        with self._stage(StartStage.PrefillCapture):
            captures.capture(Phase.Prefill)
        with self._stage(StartStage.DecodeMeasure):
            captures.capture(Phase.Decode)
            decode_bytes = captures.drop(Phase.Decode)
            if draft is not None:
                decode_bytes += draft.measured(captures.plan)
        with self._stage(StartStage.KvSizing):
            kv_tokens = self._allocate_cache(
                config, least_context(asked.feature_set(), known), device_state, decode_bytes, captures.plan, draft
            )
            self.config = replace(config, max_model_len=derived_limits.context(asked, known, kv_tokens))
            report.limits = derived_limits.served(asked, self.config)
        with self._stage(StartStage.DecodeCapture):
            captures.capture(Phase.Decode)
            if draft is not None:
                self._warn(draft.capture(captures.plan))
        self._enter(State.SelfChecking)
        with self._stage(StartStage.SelfCheck):
            for phase in Phase:
                captures.check(phase)
            if draft is not None:
                self._warn(draft.check())
        measured = MeasuredLimits(self.config, captures.captured, device_state, self._ranks)
        if self.config.prefill_budget is None:
            self.config = replace(self.config, prefill_budget=measured.prefill_budget(draft))
        if (method := asked.features.speculative) is not None:
            given = asked.features.speculative_max_batch
            limit = given or measured.draft_limit(draft)
            self.config = replace(self.config, features=replace(asked.features, speculative_max_batch=limit))
            report.drafts = ServedDrafts(method, asked.features.speculative_steps, limit, auto=given is None)
            if draft is not None:
                tree = asked.features.speculative_topk, asked.feature_set().verify_width - 1
                report.drafts = ServedDrafts(*report.drafts[:4], draft.name, len(draft.model.graphs), *tree)
                draft.ready()
            logger.info("batches of up to %d requests are decoded with drafts", limit)
        tier = None
        if asked.features.host_cache_bytes is not None:
            cache_there, seconds = device_state.attention.cache, measured.token_seconds()
            known = partial(page_identity, self.config, device_state.model, device_state.attention)
            tier = host_tier(self.config, cache_there, seconds, self.counters, switches, self._ranks, known)
        if tier is not None:
            pages = tier.parts.slots
            report.host_cache = ServedHostCache(pages * sum(tier.parts.page_bytes), pages * asked.page_size)
        device_state.fill_scratch()
        capturer.closed = True
        if cache is not None:
            cache.sealed = True
        if self._ranks.count > 1:
            own = report.of_rank(self._ranks.rank)
            report.ranks = tuple(RankReport(*each) for each in self._ranks.gathered(own))
        report.state = State.Ready
        self._tell()
        if tier is not None:
            tier.allocate()
        return Started(
            device_state.model,
            device_state.device,
            device_state.attention,
            capturer,
            device_state.passes,
            device_state.seats,
            {phase: captured.graphs for phase, captured in captures.captured.items()},
            captures.captured,
            self._ladders(captures, switches),
            switches.modes,
            cache,
            tier,
            sleeping.sleeper(device_state, captures.check_again),
        )

    def _warn(self, warning: str | None) -> None:
        """Reports and logs what may make answers worse than the model's own, if anything does."""
        if warning:
            self.report.warnings += (warning,)
            logger.warning("model %s: %s", self.config.model.name, warning)

    def _unscaled(self, model: Model | DraftHead) -> str | None:
        return warning_of(model.unscaled_layers, model.shape.layers) if quantises(cache_dtype(self.config)) else None

    def _refined(self, facts: Facts) -> Plan:
        """The plan, weakened by what model, device and memory show. StartFailure when that or a duty forbids it."""
        plan = refine(self._plan, facts)
        self.report.decisions = plan.decisions
        if (refused := plan.refused) is not None:
            raise StartFailure.by(policy_refused(refused))
        fulfilled_duties.accept(plan)
        for phase, planned in plan.phases.items():
            self.report.phases[phase].effective = planned.planned
        return plan

    def _compiled(self, switches: Switches, function: str) -> None:
        """`function` has been compiled or loaded: progress, unless a fault asks for a failure."""
        with self._ranks.agreed():
            if switches.fires(FaultKind.Compile, function):
                raise CompileFailed(f"{function}: injected fault")
        self._tell()

    def _allocate_cache(
        self,
        config: EngineConfig,
        least: int,
        device_state: DeviceState,
        decode_bytes: int,
        plan: Plan,
        draft: DraftStart | None,
    ) -> int:
        """Makes the KV cache, for at least one sequence of `least` tokens and the check of the graphs of `plan`, and
        that of a draft model; the tokens that sequences can own.
        """
        model, attention = device_state.model, device_state.attention
        inputs = dummy_inputs(Phase.Prefill, config.prefill_chunk, config.page_size, device_state.device)
        attention.plan(inputs)

        def prefill() -> object:
            """The largest chunk, of requests that want log-probabilities of their prompts; logits of their answers,
            and tokens drawn with grammars and every filter; the same chunk read by a draft model."""
            if draft is not None:
                draft.read_chunk()
            hidden = device_state.passes[Phase.Prefill].eager(inputs, attention.run, inputs.count)[0]
            logits = model.head(hidden[-config.max_batch :])
            scored = hidden[-rows_at_once(model.shape.vocab) :]
            of_hidden(model, scored, scored.new_zeros(scored.shape[0], dtype=torch.int64), 1)
            return logits, rehearsed(
                logits, inputs.positions[-logits.shape[0] :], attention.cache.slot_tokens, config.max_model_len
            )

        def allocate(pages: int) -> tuple[KvCache, ...]:
            own = device_state.new_cache(config, pages)
            return (own,) if draft is None else (own, draft.new_cache(pages))

        largest, more = largest_sizes(plan), 0 if draft is None else draft.page_bytes
        cache, *drafts = kv_sizing.cache(
            config, least, model.shape, device_state.place, allocate, prefill, decode_bytes, largest, self._ranks, more
        )
        self.report.kv_pages = cache.pages - 1
        self.report.kv_bytes = sum(one.nbytes for one in (cache, *drafts))
        device_state.bind(cache)
        if draft is not None:
            draft.bind(*drafts)
        return self.report.kv_pages * config.page_size

    def _ladders(self, captures: DegradingCapture, switches: Switches) -> dict[Phase, Ladder]:
        return {
            phase: Ladder(
                phase=phase,
                policy=policy,
                planned=self.config.rows(phase),
                captured=captures.captured[phase].graphs.sizes if phase in captures.captured else (),
                gates=gates_of(captures.plan.gates, phase, policy),
                ready=True,
                forced_eager=Mode.Eager in switches.modes,
            )
            for phase, policy in ((phase, captures.plan.phases[phase].planned) for phase in Phase)
        }

    def _enter(self, state: State) -> None:
        """Reported before any of its stages has ended: one of a short ladder ends without another report."""
        self.report.state = state
        self._tell()

    @contextmanager
    def _stage(self, stage: StartStage) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.report.stages[stage] = time.perf_counter() - began
        self._tell()

    def _tell(self) -> None:
        self._reported = time.monotonic()
        if self._compile_cache is not None:
            self.report.compiled = self._compile_cache.compiles, self._compile_cache.loads
        self._send(self.report)

    def _alive(self) -> None:
        """A stage has made progress: that is reported, too, but at most once a second."""
        if time.monotonic() - self._reported >= ALIVE_SECONDS:
            self._tell()


def _of_one_rank(switches: Switches) -> str:
    """Which of the `switches` several ranks do not have, and what to do; empty: none."""
    if Mode.Poison in switches.modes:
        return f"{DEBUG}: poison is of one rank: only the first one knows which pages are free; leave it out"
    if switches.acceptance is not None:
        return f"{ACCEPTANCE} is of one rank: its script goes by seats, which ranks number for themselves; unset it"
    return ""
