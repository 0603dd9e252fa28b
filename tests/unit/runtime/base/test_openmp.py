"""OpenMP's threads sleep soon after they have nothing to do, so that a busy node does not stop a start."""

import os

import pytest

from graphpod_runtime.base.process.openmp import SPIN_COUNT, bound_spinning
from graphpod_runtime.cli import main


def test_a_command_bounds_the_spinning_of_the_processes_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    with pytest.raises(SystemExit):
        main(["convert", "--help"])
    assert os.environ["GOMP_SPINCOUNT"] == str(SPIN_COUNT)


@pytest.mark.parametrize("chosen", [{"OMP_WAIT_POLICY": "PASSIVE"}, {"GOMP_SPINCOUNT": "5"}])
def test_what_the_user_sets_stays(chosen: dict[str, str]) -> None:
    environment = dict(chosen)
    bound_spinning(environment)
    assert environment == chosen
