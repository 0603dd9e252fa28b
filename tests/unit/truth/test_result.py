"""Results as JSON and as the page; what makes a run fail."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from graphpod_policy import CompileMode, Device, Policy
from truth import __main__ as command
from truth.accuracy import Likelihood, failures
from truth.axes import EAGER, Variant
from truth.cell import Cell, Outcome
from truth.page import PAGE, page
from truth.result import Result
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


def test_near_ties_fail_a_run_above_their_share() -> None:
    first, *others = result().cells
    assert result(cells=(replace(first, near_ties=9), *others)).failures() == []
    assert result(cells=(replace(first, near_ties=10), *others)).failures() == [
        "10 near-ties among 9000 tokens are more than 0.1%"
    ]


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
        (told,) = failures([eager, Likelihood(Policy.Breakable, 100, nats)])
        assert told.startswith("accuracy, Breakable")


def test_a_likelihood_that_cannot_be_had_fails() -> None:
    assert failures([Likelihood(Policy.Disabled, failed="no folder")]) == ["accuracy, Disabled: no folder"]


def test_no_cell_of_the_page_is_blank() -> None:
    rows = [line for line in page([result()]).splitlines() if line.startswith("| Disabled / Disabled")]
    rows += [line for line in page([result()]).splitlines() if line.startswith("| Breakable / Full, inductor")]
    assert [row.count("|") for row in rows] == [len(Name) + 2] * 2
    assert all(cell.strip() for row in rows for cell in row.split("|")[1:-1])


def test_the_page_is_that_of_the_results_and_tells_no_failure() -> None:
    results = [Result.read(file) for file in sorted((ROOT / "truth" / "results").glob("*.json"))]
    assert (ROOT / PAGE).read_text() == page(results), "run: python -m truth --page"
    assert [told for one in results for told in one.failures()] == []


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
