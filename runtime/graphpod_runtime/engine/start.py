"""From a configuration to a Ready engine.

The order is a chain of needs. Weights first; then static buffers, because graphs freeze their addresses; then
prefill graphs, captured for real against a one-page scratch cache (their breaks fetch the cache when they run, so a
later cache serves them too); then the decode ladder, captured only to learn what it costs, and dropped: a full
decode graph freezes the cache's address, so it cannot be kept before the cache exists. What is then free, less the
measured peak of an eager pass, is the KV cache. Decode is captured again at its final address, every graph is
checked, and only then is the engine Ready.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from graphpod_policy import (
    EngineConfig,
    ExitCode,
    Phase,
    Plan,
    Policy,
    not_built,
    resolve,
)
from graphpod_runtime.attention.sdpa import TorchAttention
from graphpod_runtime.cache.kv import KvCache, page_bytes
from graphpod_runtime.engine.counters import Counters
from graphpod_runtime.engine.failure import StartFailure
from graphpod_runtime.engine.inputs import dummy_inputs
from graphpod_runtime.engine.passes import DecodePass, Pass, PrefillPass
from graphpod_runtime.graphs.dispatch import Ladder
from graphpod_runtime.graphs.memory import MARGIN, available_bytes, peak_of
from graphpod_runtime.graphs.report import PhaseReport, Report, Stage, State
from graphpod_runtime.models.base import Model, ModelInvalid, dtype_of
from graphpod_runtime.models.loader import load_model


@dataclass(slots=True)
class Started:
    """A Ready engine's parts."""

    model: Model
    attention: TorchAttention
    passes: dict[Phase, Pass]
    ladders: dict[Phase, Ladder]


class Starter:
    """One start. It reports after every stage and every captured size."""

    def __init__(
        self,
        config: EngineConfig,
        report: Callable[[Report], None],
        counters: Counters,
        started_at: float | None,
    ) -> None:
        self.config = config
        self.counters = counters
        self.started_at = started_at
        self._send = report
        self.plan: Plan = _plan(config)
        self.report = Report(
            backend=self.plan.backend,
            phases={
                phase: PhaseReport(
                    requested=config.phase(phase).requested,
                    planned=config.phase(phase).planned,
                    effective=self.plan.phases[phase].planned,
                    planned_sizes=len(config.phase(phase).sizes),
                )
                for phase in Phase
            },
            page_size=config.page_size,
        )

    def run(self) -> Started:
        """A Ready engine, or StartFailure after a report that says Failed."""
        try:
            return self._run()
        except StartFailure as failure:
            self.report.state = State.Failed
            self.report.failure = (failure.reason, failure.message)
            self._tell()
            raise

    @torch.no_grad()
    def _run(self) -> Started:
        if self.started_at is not None:
            self.report.stages[Stage.Import] = time.time() - self.started_at
        self._tell()
        self._refuse_unbuilt()
        if self.config.threads is not None:
            torch.set_num_threads(self.config.threads)
        dtype = dtype_of(self.config.dtype)
        with self._stage(Stage.Load):
            model = self._load(dtype)
        attention = TorchAttention()
        attention.bind(KvCache.allocate(model.shape, 1, self.config.page_size, dtype))
        passes: dict[Phase, Pass] = {
            Phase.Prefill: PrefillPass(model, self.config.prefill_chunk, dtype),
            Phase.Decode: DecodePass(model, self.config.max_batch, self._pages_of_one(), dtype),
        }
        with self._stage(Stage.KvSizing):
            cache = self._allocate_cache(model, attention, passes[Phase.Prefill], dtype)
        attention.bind(cache)
        ladders = {
            phase: Ladder(phase, self.plan.phases[phase].planned, self.plan.phases[phase].sizes, (), True)
            for phase in Phase
        }
        self.report.state = State.Ready
        self._tell()
        return Started(model, attention, passes, ladders)

    def _refuse_unbuilt(self) -> None:
        missing = not_built(self.config.feature_set(), self.config.planned_request())
        if missing:
            raise StartFailure(ExitCode.FeatureNotBuilt, "; ".join(entry.message for entry in missing))

    def _load(self, dtype: torch.dtype) -> Model:
        try:
            model = load_model(Path(self.config.model.path), dtype, self.config.max_model_len)
        except ModelInvalid as error:
            raise StartFailure(ExitCode.ModelInvalid, str(error)) from error
        if self.config.max_model_len > model.shape.max_position:
            raise StartFailure(
                ExitCode.ConfigInvalid,
                f"maxModelLen {self.config.max_model_len} is more than the {model.shape.max_position} positions of "
                f"{self.config.model.name}; lower maxModelLen",
            )
        return model

    def _pages_of_one(self) -> int:
        """Pages of one sequence of maxModelLen tokens."""
        return -(-self.config.max_model_len // self.config.page_size)

    def _allocate_cache(
        self, model: Model, attention: TorchAttention, prefill: Pass, dtype: torch.dtype
    ) -> KvCache:
        """The KV cache: what is free after the measured peak of an eager prefill, at most maxBatch full contexts."""
        one_page = page_bytes(model.shape, self.config.page_size, dtype)
        wanted = self.config.max_batch * self._pages_of_one()
        if self.config.kv_cache_bytes is not None:
            room, pages = self.config.kv_cache_bytes, self.config.kv_cache_bytes // one_page
        else:
            inputs = dummy_inputs(Phase.Prefill, self.config.prefill_chunk, self.config.page_size)
            attention.plan(inputs.metadata)
            peak = peak_of(lambda: model.head(prefill.eager(inputs, attention.run, inputs.count)[0]))
            room = int(available_bytes() * (1 - MARGIN)) - peak
            pages = min(wanted, room // one_page)
        if pages < self._pages_of_one():
            raise StartFailure(
                ExitCode.ConfigInvalid,
                f"the KV cache has room for {max(0, pages)} pages ({max(0, room)} bytes), one sequence of maxModelLen "
                f"{self.config.max_model_len} needs {self._pages_of_one()}; raise memory or lower maxModelLen",
            )
        self.report.kv_pages = pages
        return KvCache.allocate(model.shape, pages + 1, self.config.page_size, dtype)

    @contextmanager
    def _stage(self, stage: Stage) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.report.stages[stage] = time.perf_counter() - began
        self._tell()

    def _tell(self) -> None:
        self._send(self.report)


def _plan(config: EngineConfig) -> Plan:
    """The engine's own resolution: it starts from the operator's plan as an explicit request, and keeps only the
    decisions taken here.
    """
    return resolve(config.feature_set(), config.planned_request())
