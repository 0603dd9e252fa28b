"""The support matrix: every cell is a recorded run, and the page is what they say."""

from dataclasses import replace

import pytest

from truth.cell import Outcome
from truth.support import page as pages
from truth.support.page import PAGE, page
from truth.support.recorded import kept
from truth.support.subjects import DECODERS, VARIANTS, named, refused, subject


def test_the_page_is_what_the_recorded_runs_say() -> None:
    assert PAGE.read_text() == page(), "make support-matrix SUPPORT=--page"


@pytest.mark.parametrize("architecture", DECODERS)
def test_every_policy_and_format_of_an_architecture_has_run_or_is_refused_as_recorded(architecture: str) -> None:
    cells = {(cell.subject, cell.variant): cell for cell in kept()[architecture]}
    assert set(cells) == {(named(architecture, kind), each) for kind, of in VARIANTS.items() for each in of}
    for kind, variants in VARIANTS.items():
        because = refused(subject(architecture, kind))
        for each in variants:
            cell = cells[named(architecture, kind), each]
            assert (cell.outcome, cell.because) == (Outcome.Refused if because else Outcome.Passed, because)
            assert bool(cell.tokens) is not bool(because)


def test_a_wrong_run_and_one_that_is_missing_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    found = kept()
    wrong = tuple(replace(cell, outcome=Outcome.Failed) for cell in found["LlamaForCausalLM"])
    monkeypatch.setattr(pages, "kept", lambda: {**found, "LlamaForCausalLM": wrong, "MistralForCausalLM": ()})
    rows = {line.split("`")[1]: line for line in page().splitlines() if line.startswith("| `")}
    assert rows["LlamaForCausalLM"].count("✗") == 6
    assert rows["MistralForCausalLM"].count("not run") == 6
    assert rows["Qwen2ForCausalLM"].count("✓") == 6
