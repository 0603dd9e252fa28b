"""What the workers of `make test` share out between them."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import POLITE, STARTED_WITH, _be_nicer
from tests.units import APART, THEN, turn_of, unit_of

TESTS = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("level", ["sim", "e2e"])
def test_tests_that_share_a_cluster_are_one_unit(level: str) -> None:
    tests = f"tests/{level}/test_a.py::test_x", f"tests/{level}/stubs/test_b.py::test_y[a/b]"
    assert {unit_of(test) for test in tests} == {f"tests/{level}"}


def test_the_level_that_takes_longest_is_three_units_of_which_two_halve_the_operators_tests() -> None:
    operator = sorted((TESTS / "api" / "operator").glob("test_*.py"))
    units = [unit_of(f"tests/api/operator/{file.name}::test_x") for file in operator]
    assert len(set(units)) == 2
    assert 0.4 < units.count(units[0]) / len(units) < 0.6
    assert {unit_of(f"tests/api/{folder}/test_x.py::test_y") for folder in ("chart", "demo", "stubs")} == {"tests/api"}


def test_elsewhere_a_file_is_one_whose_fixtures_are_made_once() -> None:
    assert unit_of("tests/unit/stubs/test_proxy.py::test_x[api/v1]") == "tests/unit/stubs/test_proxy.py"
    assert unit_of("tests/contracts/test_01_break_arena.py::test_x") == "tests/contracts/test_01_break_arena.py"


@pytest.mark.parametrize("file", APART)
def test_a_file_that_does_without_the_shared_cluster_is_a_unit_and_asks_for_none_of_its_fixtures(file: str) -> None:
    """Two workers that asked for one cluster would wait for each other."""
    assert unit_of(f"tests/{file}::test_x") == f"tests/{file}"
    conftest = (TESTS / file).with_name("conftest.py").read_text()
    fixtures = re.findall(r"@pytest\.fixture.*\ndef (\w+)", conftest)
    assert "node_cluster" in fixtures
    assert not {*fixtures} & {*re.findall(r"\w+", (TESTS / file).read_text())}


def test_levels_with_clusters_begin_then_what_takes_long_and_short_files_are_left_for_the_end() -> None:
    assert all((TESTS / path).exists() for path in THEN)
    turns = ["e2e/test_modes.py", "api/chart/test_chart.py", "sim/test_loss.py", *THEN, "unit/policy/test_rules.py"]
    turned = turns[::-1]
    turned.sort(key=turn_of)
    assert turned == turns


def test_what_computes_lets_levels_with_clusters_go_first_and_those_are_as_the_whole_run() -> None:
    with ThreadPoolExecutor(1) as thread:  # Linux has a niceness for each

        def niceness(by: int) -> int:
            thread.submit(_be_nicer, by).result()
            return thread.submit(os.getpriority, os.PRIO_PROCESS, 0).result()

        assert [niceness(by) for by in (POLITE, 0)] == [min(STARTED_WITH + POLITE, 19), STARTED_WITH]
