"""The matrix on a small part of itself, and that it can fail: for a wrong token, a wrong count, a wrong policy."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphpod_policy import BUILT_POLICIES, CompileMode, Device, Features, Phase, Policy
from graphpod_policy.model.architectures import ARCHITECTURES
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.cache.files.file_tier import FileTier
from graphpod_runtime.compiled.aot import Function, TensorFunction
from graphpod_runtime.compiled.cache import CompileCache
from graphpod_runtime.graphs.captured_graphs import PhaseGraphs
from graphpod_runtime.wire.counters import Counters
from graphpod_runtime.wire.series import Add
from tests.contracts.passes import replay_by_code
from truth import models
from truth.axes import EAGER, Variant, refused_by, variants
from truth.cell import Cell, Outcome
from truth.matrix import Matrix, run
from truth.models import CONTEXT, small, subjects
from truth.ranks.spread import Spread
from truth.scenarios import DRAFT_MODEL, EAGLE, EAGLE3, FILES, MTP, SCENARIOS, TREES, Name, Scenario

LLAMA = small("LlamaForCausalLM")
DECODERS = {name for name, row in ARCHITECTURES.items() if not row.text_part}
GRAPHS = Variant(Policy.Breakable, Policy.Full)
NAMES = tuple(scenario.name for scenario in SCENARIOS)


def cells(*variants: Variant, names: tuple[Name, ...] = (Name.Plain,), **changes: Any) -> list[Cell]:
    """Those of a tiny Llama on the CPU."""
    chosen = tuple(scenario for scenario in SCENARIOS if scenario.name in names)
    return run(Matrix(Device.Cpu, (LLAMA,), variants, chosen, **changes), lambda done, of, cell: None)


def summary(found: list[Cell]) -> list[str]:
    return [f"{cell.scenario}: {cell.summary}" for cell in found if cell.outcome is not Outcome.Passed]


def test_graphs_pass_every_scenario() -> None:
    found = cells(GRAPHS, names=NAMES)
    assert summary(found) == []
    assert len(found) == len(NAMES)
    assert all(cell.tokens > 10 for cell in found)
    scored = {cell.scenario for cell in found if cell.scored}
    assert scored == {Name.Embeddings, Name.OutputLogprobs, Name.InputLogprobs, Name.DraftsLogprobs}


@pytest.mark.parametrize("count", [5, pytest.param(len(NAMES), marks=pytest.mark.slow)])
def test_a_seeded_sample_of_scenarios_passes_without_graphs(count: int) -> None:
    found = cells(EAGER, names=tuple(random.Random(7).sample(NAMES, count)))
    assert summary(found) == []
    assert len(found) == count
    assert all(cell.tokens > 10 for cell in found)


@pytest.mark.parametrize("rows", [DRAFT_MODEL, EAGLE, EAGLE3, TREES[:8]])
def test_a_seeded_sample_of_what_drafts_passes(rows: tuple[Scenario, ...]) -> None:
    sample = random.Random(7).sample(rows, 2)
    found = run(Matrix(Device.Cpu, (LLAMA,), (GRAPHS,), tuple(sample)), lambda done, of, cell: None)
    assert summary(found) == []
    assert all(cell.tokens > 10 for cell in found)


def test_prefixes_come_from_files_that_another_engine_has_left() -> None:
    found = run(Matrix(Device.Cpu, (LLAMA,), (GRAPHS,), FILES), lambda done, of, cell: None)
    assert summary(found) == []
    assert all(cell.tokens > 10 for cell in found)


def test_pages_that_are_not_read_from_files_fail_their_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileTier, "known", lambda *arguments: [])
    (cell,) = run(Matrix(Device.Cpu, (LLAMA,), (EAGER,), FILES[:1]), lambda done, of, cell: None)
    assert cell.outcome is Outcome.Failed
    assert "228 tokens of 456 were found" in cell.because


def test_over_ranks_files_are_refused_by_their_field() -> None:
    found = run(Matrix(Device.Cpu, (LLAMA,), (GRAPHS,), FILES, spread=Spread(tensor=2)), lambda done, of, cell: None)
    assert [cell.because for cell in found] == ["FeatureNotBuilt (spec.engine.hostCache.file)"] * 2


def test_a_seeded_sample_of_mtp_passes_and_others_have_no_such_layers() -> None:
    sample, subjects = random.Random(7).sample(MTP, 2), (small("MiMoForCausalLM"), LLAMA)
    found = run(Matrix(Device.Cpu, subjects, (GRAPHS,), tuple(sample)), lambda done, of, cell: None)
    assert [cell.outcome for cell in found] == [Outcome.Passed] * 2 + [Outcome.Refused] * 2
    assert all(cell.tokens > 10 for cell in found[:2])
    assert "MTP layers of 'LlamaForCausalLM' are not built" in found[-1].summary


def test_graphs_pass_when_dead_memory_is_poisoned() -> None:
    names = (Name.Plain, Name.PrefixHit, Name.ChunkTail, Name.Requests)
    assert summary(cells(EAGER, GRAPHS, Variant(Policy.Breakable, Policy.Breakable), names=names, poisoned=True)) == []


def test_a_seeded_sample_of_families_passes() -> None:
    every = subjects(Device.Cpu)
    assert {subject.architecture for subject in every} == DECODERS
    matrix = Matrix(Device.Cpu, tuple(random.Random(9).sample(every, 4)), (EAGER, GRAPHS), SCENARIOS[:2])
    assert summary(run(matrix, lambda done, of, cell: None)) == []


def test_a_policy_that_cannot_run_is_refused_by_its_rule_in_every_scenario() -> None:
    found = cells(Variant(Policy.Full, Policy.Disabled), Variant(Policy.Disabled, Policy.Piecewise), names=NAMES)
    assert {cell.outcome for cell in found} == {Outcome.Refused}
    assert [cell.because for cell in found] == ["NotBuilt, FullPrefill"] * len(NAMES) + ["PiecewiseDecode"] * len(NAMES)


def test_every_policy_of_the_api_has_a_row() -> None:
    for phase in Phase:
        assert {variant.policy(phase) for variant in variants()} == set(Policy) - {Policy.Auto}
    assert {variant.compile for variant in variants()} == set(CompileMode) - {CompileMode.Auto}
    assert len(set(variants())) == len(variants())


def test_what_is_built_is_not_refused() -> None:
    for prefill in BUILT_POLICIES[Phase.Prefill]:
        for decode in BUILT_POLICIES[Phase.Decode]:
            assert refused_by(Features(), Variant(prefill, decode)) is None


def test_what_is_not_built_is_refused_by_its_field() -> None:
    tuned = Variant(Policy.Disabled, Policy.Disabled, CompileMode.Autotune)
    assert refused_by(Features(), tuned) == "FeatureNotBuilt (spec.graph.compile)"


def test_layers_are_compiled_on_a_cpu_though_a_service_there_has_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHPOD_COMPILE_CACHE", str(tmp_path))
    assert summary(cells(Variant(Policy.Breakable, Policy.Full, CompileMode.Inductor))) == []
    assert list(tmp_path.iterdir()), "what was compiled is kept"


Replay = Callable[..., tuple[Tensor, ...]]


def spoilt(monkeypatch: pytest.MonkeyPatch, phase: Phase, spoil: Callable[[tuple[Tensor, ...]], None]) -> None:
    """Replays of `phase` are right until the engine serves, then `spoil` has their results."""
    replay: Replay = PhaseGraphs.replay

    def wrong(self: PhaseGraphs, inputs: Any, size: int) -> tuple[Tensor, ...]:
        results = replay(self, inputs, size)
        if inputs.phase is phase and any(chosen for chosen in serving):
            spoil(results)
        return results

    from truth import row

    serving: list[bool] = []
    start = row.start_engine

    def started(*arguments: Any, **options: Any) -> Any:
        serving.clear()
        runner = start(*arguments, **options)
        serving.append(True)
        return runner

    monkeypatch.setattr(row, "start_engine", started)
    monkeypatch.setattr(PhaseGraphs, "replay", wrong)


def test_a_wrong_token_fails_its_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt(monkeypatch, Phase.Decode, lambda results: results[1][-1:].fill_(7))
    (cell,) = cells(GRAPHS)
    assert cell.outcome is Outcome.Failed
    assert "tokens are not eager's" in cell.because


def test_a_wrong_log_probability_fails_its_cell_though_the_tokens_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt(monkeypatch, Phase.Decode, lambda results: results[0].mul_(1.01))
    plain, scored = cells(GRAPHS, names=(Name.Plain, Name.OutputLogprobs))
    assert plain.outcome is Outcome.Passed
    assert scored.outcome is Outcome.Failed
    assert "a log-probability differs by" in scored.because


ROUNDED = replace(small("Qwen3ForCausalLM"), name="Qwen3 bf16", dtype="bfloat16", fixed=False)
COMPILED = Variant(Policy.Disabled, Policy.Disabled, CompileMode.Inductor)


def keeping_32_bits(monkeypatch: pytest.MonkeyPatch, off: float) -> None:
    """What is compiled computes in 32 bits what eager rounds to 16 after every step, and is `off` by that factor."""

    def run(self: CompileCache, name: str, text: str, function: Function, examples: Any, rows: Any) -> Any:
        written = TensorFunction(function, examples, rows)

        def compiled(tensors: list[Tensor]) -> tuple[Tensor, ...]:
            wide = [one.float() if one.is_floating_point() else one for one in tensors]
            results = written(*wide)
            for narrow, one in zip(tensors, wide, strict=True):
                narrow.copy_(one)
            return tuple((one * off).to(tensors[0].dtype) for one in results)

        return compiled

    monkeypatch.setattr(CompileCache, "_run", run)


@pytest.mark.parametrize(("off", "right"), [(1.0, True), (1.2, False)])
def test_compiled_16_bit_code_may_round_less_and_not_compute_something_else(
    monkeypatch: pytest.MonkeyPatch, off: float, right: bool
) -> None:
    keeping_32_bits(monkeypatch, off)
    monkeypatch.setattr("graphpod_runtime.compiled.cache.prove", lambda *arguments: None)  # which would find it first
    scenarios = tuple(one for one in SCENARIOS if one.name in (Name.Plain, Name.OutputLogprobs))
    found = run(Matrix(Device.Cpu, (ROUNDED,), (COMPILED,), scenarios), lambda done, of, cell: None)
    assert {cell.outcome for cell in found} == ({Outcome.Passed} if right else {Outcome.Failed}), summary(found)
    assert right or "behind eager's choice" in found[0].because
    assert all(cell.allowed > cell.worst for cell in found if right)
    assert f"{found[1].allowed:.2g} allowed" in found[1].summary


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_nudge_is_one_or_two_units_in_the_last_place(dtype: torch.dtype, tmp_path: Path) -> None:
    folder = ROUNDED.folder(tmp_path)
    plain, nudged = (
        list(make(folder, dtype, CONTEXT, HOST).module().parameters()) for make in (models.load, models.nudged)
    )
    for one, other in zip(plain, nudged, strict=True):
        unit = torch.exp2(torch.floor(torch.log2(one.detach().double().abs()))) * torch.finfo(dtype).eps
        moved = ((other.detach().double() - one.detach().double()) / unit)[one != 0]
        assert set(moved.tolist()) <= {-2.0, -1.0, 1.0, 2.0}


def test_a_replay_that_runs_the_models_code_fails_by_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    replay_by_code(monkeypatch)
    (cell,) = cells(GRAPHS)
    assert cell.outcome is Outcome.Failed
    assert "the body's hook saw" in cell.because


def test_a_pass_that_nobody_counts_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    adder = Counters.adder

    def forgetful(self: Counters, name: str, /, **labels: str) -> Add:
        return (lambda amount=1: None) if name == "graphpod_graph_replays_total" else adder(self, name, **labels)

    monkeypatch.setattr(Counters, "adder", forgetful)
    (cell,) = cells(GRAPHS)
    assert cell.outcome is Outcome.Failed
    assert "0 replays and 0 fallbacks" in cell.because


def test_a_fallback_without_a_gate_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHPOD_DEBUG", "eager")
    (cell,) = cells(GRAPHS)
    assert cell.because == "prefill ran eagerly for ForcedEager, expected none"


def test_an_engine_that_cannot_start_fails_its_cells_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHPOD_FAULT", "capture:decode:4")
    first, second = cells(GRAPHS, names=(Name.Plain, Name.PrefixHit))
    assert (first.outcome, second.outcome) == (Outcome.Failed, Outcome.Failed)
    assert "CaptureFailed: model Llama, decode size 4" in first.because


def test_a_family_whose_eager_engine_cannot_start_fails_in_every_cell() -> None:
    broken = replace(LLAMA, config={**LLAMA.config, "hidden_act": "sine"})
    found = run(Matrix(Device.Cpu, (broken,), (EAGER, GRAPHS)), lambda done, of, cell: None)
    assert len(found) == 2 * len(NAMES)
    assert {cell.outcome for cell in found} == {Outcome.Failed}
    assert "no reference: StartFailure: ModelUnsupported" in found[0].because


def test_a_fault_that_degrades_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from truth import scenarios

    monkeypatch.setitem(scenarios.FAULTY_SIZE, Phase.Decode, 3)  # no such size
    (cell,) = cells(GRAPHS, names=(Name.CaptureFault,))
    assert cell.because == "decode: the injected fault led to no decision"


def test_subjects_of_a_gpu_are_those_of_the_cpu_and_more(tmp_path: Path) -> None:
    names = [subject.name for subject in subjects(Device.Cuda)]
    assert names[: len(DECODERS)] == [subject.name for subject in subjects(Device.Cpu)]
    assert names[len(DECODERS) :] == ["Qwen3 bf16", "Qwen3 bf16, FP8 KV"]
