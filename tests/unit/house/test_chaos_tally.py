"""What chaos counts: runs that passed and runs that did not, and nothing that an earlier session counted is lost."""

import json
from pathlib import Path

import pytest

from tests.sim.chaos.tally import NotTried, Tally


def rows(file: Path) -> dict[tuple[str, str], tuple[int, int]]:
    return {
        (row["fault"], row["scenario"]): (row["passed"], row["runs"]) for row in json.loads(file.read_text())["rows"]
    }


def fail(tally: Tally, fault: str, error: type[Exception] = AssertionError) -> None:
    with tally.telling(fault, "create"):
        raise error


@pytest.mark.parametrize(("error", "runs"), [(AssertionError, 2), (OSError, 2), (NotTried, 1)])
def test_runs_that_fail_in_any_way_are_counted_too(tmp_path: Path, error: type[Exception], runs: int) -> None:
    tally = Tally(tmp_path / "counts")
    tally.ran("cut", "create", writes=3, allowed=4, seconds=1.0)
    with pytest.raises(error):
        fail(tally, "cut", error)
    assert rows(tmp_path / "counts") == {("cut", "create"): (1, runs)}


def test_a_session_takes_the_place_of_an_earlier_one_in_its_own_rows_alone(tmp_path: Path) -> None:
    earlier, later = Tally(tmp_path / "counts"), Tally(tmp_path / "counts")
    for fault in ("cut", "slow", "cut"):
        earlier.ran(fault, "create", writes=3, allowed=4, seconds=1.0)
    with pytest.raises(AssertionError):
        fail(later, "cut")
    assert rows(tmp_path / "counts") == {("cut", "create"): (0, 1), ("slow", "create"): (1, 1)}


def test_each_row_says_of_what_and_when(tmp_path: Path) -> None:
    Tally(tmp_path / "counts").ran("cut", "create", writes=3, allowed=4, seconds=1.0)
    (row,) = json.loads((tmp_path / "counts").read_text())["rows"]
    assert row["commit"]
    assert len(row["date"].split("-")) == 3
