"""The hot path can be read in one sitting: the files that a steady pass enters, and docs/architecture.md names them."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from graphpod_policy import Phase
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.sampling import Sampling
from tests.entered_files import ROOT, entered

PAGE = ROOT / "docs/architecture.md"
GREEDY, SAMPLED = Sampling(), Sampling(0.8, 0.9, seed=1, top_k=20)
PACKAGE = Path("runtime/graphpod_runtime")

BOUNDS = {
    (Phase.Decode, GREEDY): (9, 1275),
    (Phase.Decode, SAMPLED): (10, 1439),
    (Phase.Prefill, GREEDY): (20, 2273),
    (Phase.Prefill, SAMPLED): (21, 2437),
}
"""Files, and lines of whole files, at most."""


@pytest.mark.parametrize(("phase", "sampling"), BOUNDS)
def test_a_steady_pass_enters_no_more_files_and_lines_than_this(
    started: Callable[..., Runner], phase: Phase, sampling: Sampling
) -> None:
    found, (files, lines) = entered(started(), phase, sampling), BOUNDS[phase, sampling]
    assert len(found.files) <= files, found.files
    assert found.lines <= lines, found


def test_the_architecture_names_the_files_of_a_decode_step_in_their_order(started: Callable[..., Runner]) -> None:
    found = entered(started(), Phase.Decode, SAMPLED)
    text = PAGE.read_text().partition("#### The files of a decode step\n")[2].partition("\n#")[0]
    named = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    assert [str(PACKAGE / name) for name in named] == list(found.files)
    assert _stated(text) == [BOUNDS[phase, SAMPLED] for phase in (Phase.Decode, Phase.Prefill)]


def test_a_file_that_is_entered_is_seen(started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch) -> None:
    """Why the figures can be believed: one more call in the step, and its file is there."""
    runner = started()
    before = entered(runner, Phase.Decode, GREEDY)
    land = runner.land

    def landing(flight: object) -> object:
        assert runner.pages.free_pages
        return land(flight)  # type: ignore[arg-type]

    monkeypatch.setattr(runner, "land", landing)
    assert set(entered(runner, Phase.Decode, GREEDY).files) - set(before.files) == {str(PACKAGE / "cache/pages.py")}


def _stated(text: str) -> list[tuple[int, int]]:
    return [
        (int(files), int(lines)) for files, lines in re.findall(r"(\d+) files of (\d+) lines", " ".join(text.split()))
    ]
