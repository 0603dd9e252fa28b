"""The matrix over ranks, stages and parts of experts: a small part of it passes, what does not divide is refused."""

import os
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from graphpod_policy import Device, EngineConfig, GraphRequest, OnUnsupported, Phase, Policy, resolve
from graphpod_policy import Outcome as Decided
from graphpod_runtime.engine.ranks import process
from graphpod_runtime.engine.ranks.meeting import Meeting
from graphpod_runtime.engine.ranks.others import Start
from tests.forked import Forked, Streams, forked
from truth.__main__ import main
from truth.axes import EAGER, Variant
from truth.cell import Cell, Outcome
from truth.engines import features_of
from truth.matrix import Matrix, run
from truth.models import Subject, small, subjects
from truth.ranks.divided import divisible, refused_over_ranks
from truth.ranks.spread import Spread
from truth.report.result import Result
from truth.scenarios import EAGLE, SCENARIOS, Name, Scenario

TWO = Spread(tensor=2)
STAGES = Spread(pipeline=2)
LLAMA = small("LlamaForCausalLM")
GRAPHS = Variant(Policy.Breakable, Policy.Full)
PIECES = Variant(Policy.Piecewise, Policy.Full)


def named(*names: Name) -> tuple[Scenario, ...]:
    return tuple(scenario for scenario in SCENARIOS if scenario.name in names)


def cells(spread: Spread, scenarios: Iterable[Scenario], *variants: Variant, subject: Subject = LLAMA) -> list[Cell]:
    matrix = Matrix(Device.Cpu, (subject,), variants or (GRAPHS,), tuple(scenarios), spread=spread)
    return run(matrix, lambda done, of, cell: None)


def others(found: list[Cell]) -> list[str]:
    return [f"{cell}: {cell.summary}" for cell in found if cell.outcome is not Outcome.Passed]


@pytest.fixture
def forked_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other ranks are forks of this process, which has imported the engine."""

    def starts_of(config: EngineConfig) -> Start:
        def started(meeting: Meeting, rank: int) -> Forked:
            environment = dict(os.environ)  # that of the other process is emptied first
            with Path(os.devnull).open() as nothing:
                streams = Streams(nothing.fileno(), 2, 2)
                return forked(lambda: process.run(config, meeting, rank, process.following), environment, streams)

        return started

    monkeypatch.setattr("truth.engines.starts_of", starts_of)


@pytest.mark.usefixtures("forked_ranks")
def test_a_seeded_sample_over_two_ranks_passes() -> None:
    without_faults = [one.name for one in SCENARIOS if not one.own_passes and one.fault is None]
    found = cells(TWO, named(*random.Random(21).sample(without_faults, 2), Name.Grammars, Name.HostTier))
    assert others(found) == []
    assert all(cell.tokens > 10 for cell in found)


@pytest.mark.usefixtures("forked_ranks")
def test_a_grammar_may_leave_any_token_of_a_vocabulary_that_ranks_divide() -> None:
    (cell,) = cells(TWO, named(Name.Grammars), EAGER, subject=small("Gemma3ForCausalLM"))
    assert cell.outcome is Outcome.Passed, cell.summary


@pytest.mark.usefixtures("forked_ranks")
def test_a_seeded_sample_over_two_stages_passes() -> None:
    """Three layers are two and one. The fault is the second stage's alone."""
    without_faults = [one.name for one in SCENARIOS if not one.own_passes and one.fault is None]
    (fault,) = named(Name.CheckFault)
    drawn = random.Random(4).sample(without_faults, 2)
    scenarios = *named(*drawn, Name.Requests, Name.Grammars, Name.HostTier), fault._replace(fault_of=1)
    found = cells(STAGES, scenarios)
    assert others(found) == []
    assert all(cell.tokens > 10 for cell in found)


@pytest.mark.usefixtures("forked_ranks")
def test_a_policy_that_is_unproven_over_stages_is_tried() -> None:
    request = GraphRequest(PIECES.prefill, PIECES.decode, on_unsupported=OnUnsupported.Fail)
    decisions = resolve(features_of(LLAMA, Device.Cpu, spread=STAGES), request).decisions
    forced = {(one.rule, one.phase) for one in decisions if one.outcome is Decided.Forced}
    assert forced == {("PipelineParallel", Phase.Prefill)}
    (cell,) = cells(STAGES, named(Name.Plain), PIECES)
    assert cell.outcome is Outcome.Passed, cell.summary


@pytest.mark.usefixtures("forked_ranks")
def test_experts_in_parts_pass() -> None:
    (cell,) = cells(Spread(2, expert=2), named(Name.Plain), subject=small("Qwen2MoeForCausalLM"))
    assert cell.outcome is Outcome.Passed, cell.summary


@pytest.mark.parametrize("spread", [Spread(2), Spread(4), Spread(pipeline=3), Spread(2, 2)])
def test_subjects_divide(spread: Spread) -> None:
    found = {
        one.name: refused_over_ranks(divisible(one, spread), features_of(one, Device.Cpu, spread=spread))
        for one in subjects(Device.Cpu)
    }
    assert {name for name, reason in found.items() if reason is not None} == set()


def test_what_is_not_divided_is_refused_by_name() -> None:
    features = features_of(LLAMA, Device.Cpu, spread=TWO)
    assert refused_over_ranks(LLAMA, features) == "ParallelismInvalid (spec.parallelism)"
    sleeping = replace(features, sleep=True)
    assert refused_over_ranks(divisible(LLAMA, TWO), sleeping) == "FeatureNotBuilt (spec.engine.sleep)"


@pytest.mark.parametrize(
    ("spread", "architecture", "scenarios", "because"),
    [
        (Spread(pipeline=4), "LlamaForCausalLM", named(Name.Plain), "ParallelismInvalid (spec.parallelism)"),
        (Spread(2, expert=2), "LlamaForCausalLM", named(Name.Plain), "ParallelismInvalid (spec.parallelism)"),
        (Spread(expert=2), "MixtralForCausalLM", named(Name.Plain), "FeatureNotBuilt (spec.parallelism.expert)"),
        (STAGES, "LlamaForCausalLM", EAGLE[:1], "FeatureNotBuilt (spec.engine.speculative)"),
    ],
)
def test_cells_that_cannot_run_over_ranks_are_refused_by_name(
    spread: Spread, architecture: str, scenarios: tuple[Scenario, ...], because: str
) -> None:
    """Three layers have no four stages, a dense model has no experts, one rank has them all, and stages draft none."""
    (cell,) = cells(spread, scenarios, subject=small(architecture))
    assert (cell.outcome, cell.because) == (Outcome.Refused, because)


@pytest.mark.parametrize(
    ("spread", "words"),
    [
        (Spread(2), "2 ranks"),
        (Spread(pipeline=2), "2 stages"),
        (Spread(2, 3), "3 stages of 2 ranks"),
        (Spread(4, 1, 2), "4 ranks, experts over 2"),
    ],
)
def test_a_spread_says_what_is_divided(spread: Spread, words: str) -> None:
    assert str(spread) == words


@pytest.mark.parametrize(
    "ranks", [["--tensor-parallel", "2"], ["--pipeline-parallel", "2"], ["--expert-parallel", "2"]]
)
def test_poison_over_ranks_is_refused_by_its_option_before_anything_runs(
    ranks: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--poison", *ranks])
    assert ended.value.code == 2
    assert "--poison is of one rank, not of 2" in capsys.readouterr().err


def test_experts_alone_are_divided_among_as_many_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--expert-parallel", "2", "--subject", "Llama", "--policy", "Disabled / Full", "--scenario", "sampled"]
    assert main([*words, "--minutes", "0.0001", "--json", str(tmp_path / "found.json")]) == 0
    assert "2 of 2 cells not reached" in capsys.readouterr().out
    found = Result.read(tmp_path / "found.json")
    assert found.spread == Spread(2, 1, 2)
    assert "--tensor-parallel 2 --expert-parallel 2" in found.provenance["command"]


def test_variants_of_gpus_have_a_process_each_for_a_later_engine_shares_no_memory() -> None:
    two, variants = (LLAMA, small("Qwen3ForCausalLM")), (GRAPHS, PIECES)
    here = Matrix(Device.Cpu, two, variants, spread=TWO)
    assert here.parts() == [here.of(one) for one in two]
    there = replace(here, device=Device.Cuda)
    assert [(part.subjects, part.variants) for part in there.parts()] == [
        ((one,), (variant,)) for one in two for variant in variants
    ]
    assert len(replace(there, spread=Spread()).parts()) == 2
    chosen = {key: one for key, one in there.scenes().items() if key.variant == PIECES}
    assert [part.variants for part in replace(there, chosen=chosen).parts()] == [(PIECES,)] * 2
