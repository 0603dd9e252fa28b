"""Before Ready every captured graph is replayed on inputs unlike those of its capture: it must be the code it captured
bit for bit, and on a sample of sizes plain eager within four times what padding alone does to it. Random weights must
not hide a fault.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from graphpod_policy import ExitCode, OnCaptureFailure, Phase, Policy
from graphpod_runtime.attention.flashinfer import FlashInferAttention
from graphpod_runtime.attention.sdpa import TorchAttention
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.engine.forward.passes import DecodePass, PrefillPass
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.graphs import breakable, captured_graphs
from graphpod_runtime.graphs.break_arena import AttentionRows
from graphpod_runtime.graphs.buffers import Buffers
from graphpod_runtime.kernels import paged_attention
from graphpod_runtime.wire.report import SelfCheck
from tests.contracts.start_failures import failure_of
from tests.unit.runtime.conftest import DECODE_SIZES, PREFILL_SIZES, random_prompts

BREAKABLE = (Policy.Breakable, Policy.Breakable)
FULL = (Policy.Disabled, Policy.Full)


@pytest.mark.parametrize("policies", [BREAKABLE, (Policy.Breakable, Policy.Full)])
def test_right_graphs_pass_and_every_one_is_checked(
    started: Callable[..., Runner], policies: tuple[Policy, Policy]
) -> None:
    runner = started(*policies)
    graph = runner.report.as_dict()["graph"]
    assert [graph[phase]["selfCheck"] for phase in ("prefill", "decode")] == ["Passed", "Passed"]
    for phase in ("prefill", "decode"):
        assert runner.counters.value("graphpod_graph_selfchecks_total", phase=phase, result="passed") == 4
        assert runner.counters.value("graphpod_graph_selfchecks_total", phase=phase, result="failed") == 0


def corrupt(monkeypatch: pytest.MonkeyPatch, wrong: int) -> None:
    """The break of the last layer, in graphs of size `wrong`, writes one element that is not attention's."""
    right = breakable.BreakableGraph.attend

    def corrupting(
        self: breakable.BreakableGraph, layer: int, rows: AttentionRows, attend: Callable[[int], Tensor]
    ) -> None:
        right(self, layer, rows, attend)
        if layer == 2 and self.site.size == wrong:
            self._arena.out[0, 0] += 1e-3

    monkeypatch.setattr(breakable.BreakableGraph, "attend", corrupting)


def test_a_corrupted_break_output_is_caught(started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch) -> None:
    corrupt(monkeypatch, 16)
    failure = failure_of(started, *BREAKABLE)
    assert failure.code is ExitCode.SelfCheckFailed
    assert "prefill size 16" in failure.message


def test_a_break_output_off_by_a_bit_is_caught_on_a_size_that_plain_eager_does_not_sample(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the last layer, so that no key or value shows it: only the comparison with the captured code does."""
    corrupt(monkeypatch, 12)
    failure = failure_of(started, Policy.Breakable, Policy.Disabled, prefill_sizes=(4, 8, 12, 16, 20, 24, 32))
    assert failure.code is ExitCode.SelfCheckFailed
    assert "prefill size 12" in failure.message
    assert "differ from the uncaptured code" in failure.message


@pytest.mark.parametrize("policies", [BREAKABLE, (Policy.Breakable, Policy.Full)])
def test_a_buffer_that_is_not_loaded_is_caught(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch, policies: tuple[Policy, Policy]
) -> None:
    right = Buffers.load

    def forgetful(self: Buffers, name: str, live: Tensor, size: int) -> None:
        if name != "positions":
            right(self, name, live, size)

    monkeypatch.setattr(Buffers, "load", forgetful)
    assert failure_of(started, *policies).code is ExitCode.SelfCheckFailed


def test_a_graph_that_reads_an_old_buffer_is_caught(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every capture freezes the address of its own tokens buffer, which the next pass replaces."""
    right = DecodePass.code

    def moving(self: DecodePass, size: int) -> Any:
        self.buffers._tensors["tokens"] = self.buffers._tensors["tokens"].clone()
        moved.append(self.buffers._tensors["tokens"])
        return right(self, size)

    moved: list[Tensor] = []
    monkeypatch.setattr(DecodePass, "code", moving)
    monkeypatch.setattr("graphpod_runtime.graphs.segments.addresses.Addresses.knows", lambda self, tensor: True)
    assert failure_of(started, *FULL).code is ExitCode.SelfCheckFailed
    assert moved


@pytest.mark.parametrize("policies", [BREAKABLE, FULL])
def test_keys_written_to_a_wrong_page_are_caught(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch, policies: tuple[Policy, Policy]
) -> None:
    """Replays, and they alone, write one slot further than they should."""
    right = captured_graphs.PhaseGraphs.replay

    def shifted(self: captured_graphs.PhaseGraphs, inputs: Any, size: int) -> Any:
        inputs.slots[-1] += 1
        try:
            return right(self, inputs, size)
        finally:
            inputs.slots[-1] -= 1

    monkeypatch.setattr(captured_graphs.PhaseGraphs, "replay", shifted)
    assert failure_of(started, *policies).code is ExitCode.SelfCheckFailed


def bound(monkeypatch: pytest.MonkeyPatch) -> list[KvCache]:
    """The caches that attention is bound to from now on, the current one last."""
    caches: list[KvCache] = []
    for backend in (TorchAttention, FlashInferAttention):
        right = backend.bind

        def noting(self: Any, cache: KvCache, right: Callable[[Any, KvCache], None] = right) -> None:
            caches.append(cache)
            right(self, cache)

        monkeypatch.setattr(backend, "bind", noting)
    return caches


def replaying(monkeypatch: pytest.MonkeyPatch, wrong: int, fault: Callable[[Inputs, KvCache], Inputs]) -> None:
    """Replays of graphs of size `wrong`, and they alone, run over what `fault` makes of their inputs."""
    right, caches = captured_graphs.PhaseGraphs.replay, bound(monkeypatch)

    def faulty(self: captured_graphs.PhaseGraphs, inputs: Inputs, size: int) -> tuple[Any, ...]:
        if size == wrong:
            inputs = fault(inputs, caches[-1])
        return right(self, inputs, size)

    monkeypatch.setattr(captured_graphs.PhaseGraphs, "replay", faulty)


def past_of_another(inputs: Inputs, cache: KvCache) -> Inputs:
    """The first page of every sequence that goes beyond it is the first page of the next such sequence; of one alone,
    the cache's last page, which belongs to no sequence."""
    tables = inputs.tables.clone()
    beyond = inputs.lengths > cache.page_size
    others = tables[beyond, 0].roll(1) if int(beyond.sum()) > 1 else torch.tensor(cache.pages - 1)
    tables[beyond, 0] = others
    return dataclasses.replace(inputs, tables=tables)


def no_past(inputs: Inputs, cache: KvCache) -> Inputs:
    """Sequences are as long as what this pass adds to them."""
    return dataclasses.replace(inputs, lengths=inputs.starts.diff())


@pytest.mark.parametrize("fault", [past_of_another, no_past])
@pytest.mark.parametrize("size", DECODE_SIZES)
@pytest.mark.parametrize("decode", [Policy.Full, Policy.Breakable])
def test_a_step_without_its_own_past_is_caught_in_every_graph(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch, fault: Any, size: int, decode: Policy
) -> None:
    replaying(monkeypatch, size, fault)
    failure = failure_of(started, Policy.Disabled, decode)
    assert failure.code is ExitCode.SelfCheckFailed
    assert failure.message.startswith(f"decode size {size} ")


@pytest.mark.parametrize("fault", [past_of_another, no_past])
@pytest.mark.parametrize("size", PREFILL_SIZES)
def test_a_prefill_without_its_own_past_is_caught_in_every_graph(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch, fault: Any, size: int
) -> None:
    replaying(monkeypatch, size, fault)
    failure = failure_of(started, Policy.Breakable, Policy.Disabled)
    assert failure.code is ExitCode.SelfCheckFailed
    assert failure.message.startswith(f"prefill size {size} ")


@pytest.mark.parametrize("half", ["keys", "values"])
@pytest.mark.parametrize("policies", [(Policy.Breakable, Policy.Disabled), FULL])
def test_keys_or_values_that_no_result_shows_are_compared(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch, policies: tuple[Policy, Policy], half: str
) -> None:
    """A replay spoils the last row's key or value after it was read: only the next pass would be wrong."""
    right, caches = captured_graphs.PhaseGraphs.replay, bound(monkeypatch)

    def spoiling(self: captured_graphs.PhaseGraphs, inputs: Inputs, size: int) -> tuple[Any, ...]:
        results = right(self, inputs, size)
        getattr(caches[-1], half)[-1].flatten(0, 1)[inputs.slots[-1]] += 1e-3
        return results

    monkeypatch.setattr(captured_graphs.PhaseGraphs, "replay", spoiling)
    failure = failure_of(started, *policies)
    assert failure.code is ExitCode.SelfCheckFailed
    assert "wrote other KV pages or values" in failure.message


def test_attention_over_a_wrong_page_is_caught(started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture that froze the block table of another layout: every sequence reads the first one's pages."""
    right = TorchAttention.plan_step

    def frozen(self: TorchAttention, inputs: Inputs, size: int) -> None:
        first = inputs.tables[:1].expand_as(inputs.tables)
        right(self, dataclasses.replace(inputs, tables=first), size)

    monkeypatch.setattr(TorchAttention, "plan_step", frozen)
    failure = failure_of(started, *FULL)
    assert failure.code is ExitCode.SelfCheckFailed
    assert "plain eager" in failure.message


def test_random_weights_do_not_hide_a_wrong_position(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = PrefillPass.load

    def shifted(self: PrefillPass, inputs: Any, size: int) -> None:
        right(self, inputs, size)
        self.buffers.view("positions", size)[inputs.count - 1] += 1

    monkeypatch.setattr(PrefillPass, "load", shifted)
    failure = failure_of(started, *BREAKABLE)
    assert failure.code is ExitCode.SelfCheckFailed
    assert "padding alone explains" in failure.message


def test_what_a_failed_check_wrote_anywhere_in_the_cache_reaches_no_sequence(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong graph may leave NaN in any page, and attention over NaN is NaN even where it is masked."""
    prompts = random_prompts(8, longest=6)
    expected = generate(started(Policy.Disabled, Policy.Disabled), prompts, 8, ignore_eos=True)
    right, caches = captured_graphs.PhaseGraphs.replay, bound(monkeypatch)

    def poisoning(self: captured_graphs.PhaseGraphs, inputs: Inputs, size: int) -> tuple[Any, ...]:
        results = right(self, inputs, size)
        cache = caches[-1]
        cache.fill(torch.arange(cache.pages, device=cache.device), torch.nan)
        return results

    monkeypatch.setattr(captured_graphs.PhaseGraphs, "replay", poisoning)
    runner = started(Policy.Breakable, Policy.Disabled, on_capture_failure=OnCaptureFailure.Degrade)
    assert runner.report.as_dict()["graph"]["prefill"]["effective"] == "Disabled"
    assert not runner._engine.attention.cache.keys.isnan().any()
    assert generate(runner, prompts, 8, ignore_eos=True) == expected


@pytest.mark.parametrize("of", [lambda q, tables: tables.shape[1], lambda q, tables: q.shape[0]], ids=["width", "rows"])
def test_attention_that_rounds_by_the_width_of_its_tables_or_by_its_rows_passes(
    of: Callable[[Tensor, Tensor], int], started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A captured step attends over tables of the full width and over padded rows, an eager pass over as many pages and
    rows as it has. On a CPU of several threads torch rounds otherwise from a few dozen rows on."""
    right = paged_attention._decode

    def rounding(q: Tensor, keys: Tensor, values: Tensor, tables: Tensor, *rest: Any) -> None:
        right(q, keys, values, tables, *rest)
        rest[-1].mul_(1 + 2**-18 * of(q, tables))

    monkeypatch.setattr(paged_attention, "_decode", rounding)
    runner = started(Policy.Disabled, Policy.Full)
    assert runner.report.phases[Phase.Decode].self_check is SelfCheck.Passed


def test_a_size_counts_as_passed_only_after_both_comparisons(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions that are never loaded are wrong in the uncaptured code, too: only plain eager shows them."""
    right = Buffers.load

    def forgetful(self: Buffers, name: str, live: Tensor, size: int) -> None:
        if name != "positions":
            right(self, name, live, size)

    monkeypatch.setattr(Buffers, "load", forgetful)
    runner = started(Policy.Breakable, Policy.Disabled, on_capture_failure=OnCaptureFailure.Degrade)
    checks = "graphpod_graph_selfchecks_total"
    assert runner.counters.value(checks, phase="prefill", result="passed") == 0
    assert runner.counters.value(checks, phase="prefill", result="failed") == 2, "Breakable and Piecewise"


def test_phases_are_named(started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHPOD_FAULT", "selfcheck:decode:4")
    failure = failure_of(started, *FULL)
    assert failure.message.startswith(f"{Phase.Decode} size 4")
    assert torch.is_grad_enabled()
