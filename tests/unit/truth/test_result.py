"""Results as JSON and as the page; what makes a run fail."""

import os
import pickle
import shutil
import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import pytest

from graphpod_policy import CompileMode, Device, Policy
from truth import __main__ as command
from truth.accuracy import Likelihood, failures
from truth.axes import EAGER, Variant, variants
from truth.cell import Cell, Outcome
from truth.engines import compiled
from truth.jobs import run as in_processes
from truth.matrix import Matrix
from truth.models import small, subjects
from truth.ranks.spread import Spread
from truth.report.page import PAGE, page
from truth.report.result import Result
from truth.scenarios import SCENARIOS, Name

ROOT = Path(__file__).parents[3]
COMPILED = Variant(Policy.Breakable, Policy.Full, CompileMode.Inductor)


def result(**changes: object) -> Result:
    """Two rows."""
    cells = [Cell("Llama", EAGER, scenario.name, Outcome.Passed, tokens=1000) for scenario in SCENARIOS]
    cells += [Cell("Llama", COMPILED, scenario.name, Outcome.Refused, "NotBuilt") for scenario in SCENARIOS]
    accuracy = (Likelihood(Policy.Disabled, 100, 250.0), Likelihood(Policy.Breakable, 100, 250.1))
    return replace(Result(Device.Cpu, {"date": "2026-11-21"}, tuple(cells), accuracy), **changes)


def test_a_result_survives_its_json(tmp_path: Path) -> None:
    file = tmp_path / "cpu.json"
    file.write_text(result().as_json())
    assert Result.read(file) == result()


def test_a_result_over_ranks_survives_its_json_and_says_so_on_the_page(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    over_ranks = result(spread=Spread(2, 3))
    file.write_text(over_ranks.as_json())
    assert Result.read(file) == over_ranks
    assert "## On a CPU (recorder), over 3 stages of 2 ranks\n" in page([over_ranks])


def test_a_result_of_an_earlier_version_names_its_ranks_alone(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    file.write_text(result().as_json().replace('"provenance"', '"tensor": 2,\n "provenance"', 1))
    assert Result.read(file) == result(spread=Spread(tensor=2))


def test_a_cell_of_a_result_that_tells_no_allowance_is_read() -> None:
    cell = replace(result().cells[0], scored=7, worst=0.2, allowed=0.45)
    assert cell.summary.endswith("7 log-probabilities within 0.2, 0.45 allowed")
    assert Cell.of(cell.as_dict()) == cell
    raw = cell.as_dict()
    del raw["allowed"]
    assert Cell.of(raw).summary.endswith("7 log-probabilities within 0.2")


def test_near_ties_fail_a_run_above_their_share() -> None:
    first, *others = result().cells
    most = len(SCENARIOS)
    assert result(cells=(replace(first, near_ties=most), *others)).failures() == []
    assert result(cells=(replace(first, near_ties=most + 1), *others)).failures() == [
        f"{most + 1} near-ties among {most}000 tokens in fp32 are more than 0.1%"
    ]


ROUNDED = "Qwen3 bf16"
NAMES = tuple(scenario.name for scenario in SCENARIOS)


def test_near_ties_of_compiled_16_bit_code_are_judged_by_their_share_of_a_whole_run() -> None:
    def found(scenarios: Iterable[Name], ties: int) -> list[str]:
        rows = [(one, name) for one in variants() for name in scenarios]
        cells = (
            Cell(ROUNDED, one, name, Outcome.Passed, tokens=100, near_ties=ties if compiled(one) else 0)
            for one, name in rows
        )
        return result(device=Device.Cuda, cells=tuple(cells), accuracy=()).failures()

    count = len(variants()) * len(NAMES)
    ties = 9 * sum(compiled(one) for one in variants()) * len(NAMES)
    assert found(NAMES, 9) == [f"{ties} near-ties among {100 * count} tokens in 16 bits are more than 2.0%"]
    assert found(NAMES, 3) == []
    assert found(NAMES[1:], 9) == [], "some scenarios may have more"


def test_near_ties_of_uncompiled_16_bit_code_are_judged_in_a_run_of_any_size() -> None:
    def found(ties: int, tokens: int) -> list[str]:
        cells = (Cell(ROUNDED, EAGER, Name.Plain, Outcome.Passed, tokens=tokens, near_ties=ties),)
        return result(device=Device.Cuda, cells=cells, accuracy=()).failures()

    assert found(3, 100) == ["3 near-ties among 100 tokens in 16 bits, uncompiled, are more than 2.0%"]
    assert found(2, 100) == []
    assert found(1, 24) == [], "one is no share"


def test_failed_cells_come_first_and_say_why() -> None:
    first, *others = result().cells
    found = result(cells=(*others, replace(first, outcome=Outcome.Failed, because="x", near_ties=90))).failures()
    assert found[0] == "Llama · Disabled / Disabled · plain: failed (x): 1000 tokens, 90 near-ties"
    assert "near-ties among" in found[1]


def test_a_likelihood_that_is_off_or_no_number_fails() -> None:
    eager = Likelihood(Policy.Disabled, 100, 250.0)
    refused = Likelihood(Policy.Piecewise, refused="NotBuilt")
    assert failures([eager, Likelihood(Policy.Breakable, 100, 250.2), refused]) == []
    for nats in (250.3, 249.7, float("nan")):
        (summary,) = failures([eager, Likelihood(Policy.Breakable, 100, nats)])
        assert summary.startswith("accuracy, Breakable")


def test_a_likelihood_that_cannot_be_had_fails() -> None:
    assert failures([Likelihood(Policy.Disabled, failed="no folder")]) == ["accuracy, Disabled: no folder"]


def test_no_cell_of_the_page_is_blank() -> None:
    rows = [line for line in page([result()]).splitlines() if line.startswith("| Disabled / Disabled")]
    rows += [line for line in page([result()]).splitlines() if line.startswith("| Breakable / Full, inductor")]
    assert [row.count("|") for row in rows] == [len(NAMES) + 2] * 2
    assert all(cell.strip() for row in rows for cell in row.split("|")[1:-1])


def test_the_page_is_that_of_the_results_and_tells_no_failure() -> None:
    results = [Result.read(file) for file in sorted((ROOT / "truth" / "results").glob("*.json"))]
    assert (ROOT / PAGE).read_text() == page(results), "run: python -m truth --page"
    assert [summary for one in results for summary in one.failures()] == []


def test_the_command_writes_its_result_and_ends_with_1_when_a_cell_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--subject", "llama", "--policy", "Disabled / Full", "--scenario", "plain", "--json"]
    assert command.main([*arguments, str(tmp_path / "right.json")]) == 0
    printed = capsys.readouterr().out
    assert "✓ Llama · Disabled / Full · plain: passed: 72 tokens" in printed
    assert "1 cells: 1 passed, 0 failed, 0 refused" in printed
    assert "accuracy: not measured" in printed
    monkeypatch.setenv("GRAPHPOD_FAULT", "capture:decode:4")
    assert command.main([*arguments, str(tmp_path / "wrong.json")]) == 1
    assert "✗ 1 failed\n  Llama · Disabled / Full · plain: failed (StartFailure" in capsys.readouterr().out
    wrong = Result.read(tmp_path / "wrong.json")
    assert wrong.cells[0].outcome is Outcome.Failed
    assert wrong.provenance["command"] == (
        'python -m truth --subject llama --policy "Disabled / Full" --scenario plain'
    )
    shutil.rmtree(tmp_path)


@pytest.fixture
def without_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process need not import torch first."""
    monkeypatch.setattr("truth.jobs.SPAWN", get_context("fork"))


@pytest.mark.parametrize("imports", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_subjects_run_in_processes_of_their_own_under_one_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest, imports: bool
) -> None:
    if not imports:
        request.getfixturevalue("without_imports")
    arguments = ["--subject", "llama", "mistral", "--policy", "Disabled / Full", "--scenario", "plain", "prefix"]
    assert command.main([*arguments, "--jobs", "2", "--json", str(tmp_path / "found.json")]) == 0
    printed = capsys.readouterr().out
    assert [f"[  {done}/6]" in printed for done in range(1, 7)] == [True] * 6
    found = Result.read(tmp_path / "found.json")
    summary = [str(cell) for cell in found.cells]
    assert summary == [
        f"{name} · Disabled / Full · {scenario}"
        for name in ("Llama", "Mistral")
        for scenario in ("plain", "prefix hit", "drafts: prefix hit")
    ], "in the order of the matrix"
    assert found.provenance["command"].startswith("python -m truth --jobs 2 --subject llama mistral")


def test_a_matrix_goes_to_another_process() -> None:
    matrix = Matrix(Device.Cpu, subjects(Device.Cpu), (EAGER, COMPILED))
    assert pickle.loads(pickle.dumps(matrix)) == matrix


@pytest.mark.usefixtures("without_imports")
def test_cells_that_a_dead_process_owes_are_failed_ones() -> None:
    matrix = Matrix(Device.Cpu, (replace(small("LlamaForCausalLM"), config=Deadly()),), (EAGER,), SCENARIOS[:2])
    found = in_processes(matrix, 2, lambda done, of, cell: None)
    assert [cell.because for cell in found] == ["the process of its subject ended with 3"] * 2


@pytest.mark.usefixtures("without_imports")
def test_cells_that_a_process_owes_that_dies_amid_a_message_are_failed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truth.jobs._tell", die_amid_a_message)
    matrix = Matrix(Device.Cpu, (small("LlamaForCausalLM"),), (EAGER,), SCENARIOS[:2])
    found = in_processes(matrix, 1, lambda done, of, cell: None)
    assert [cell.because for cell in found] == ["the process of its subject ended with 3"] * 2


def die_amid_a_message(matrix: Matrix, telling: Connection) -> None:
    """As a killed process does."""
    os.write(telling.fileno(), struct.pack("!i", 100) + b"four")
    os._exit(3)


class Deadly(dict[str, object]):
    """A configuration that ends the process which reads it."""

    def __iter__(self) -> Iterator[str]:
        os._exit(3)

    def keys(self) -> NoReturn:  # type: ignore[override]
        os._exit(3)
