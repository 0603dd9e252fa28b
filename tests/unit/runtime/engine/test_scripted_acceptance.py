"""A debug switch says how many drafts are right, whatever the model says."""

from collections.abc import Callable

import pytest
import torch

from graphpod_policy import ExitCode, SpeculativeMethod
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.engine.forward.drafting.drafting_seats import DraftingSeats
from graphpod_runtime.engine.offline import answers
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.kernels.rows.scripted_acceptance import PLACES, ScriptedAcceptance
from tests.unit.runtime.conftest import random_prompts
from tests.unit.runtime.engine.test_speculation import Always

NGRAM = {"speculative": SpeculativeMethod.Ngram, "speculative_max_batch": 8}
Start = Callable[..., Runner]


def counted(runner: Runner) -> tuple[float, float]:
    """Drafts that were verified, and those of them that counted as right."""
    proposed, accepted = (f"graphpod_speculation_{kind}_tokens_total" for kind in ("proposed", "accepted"))
    return runner.counters.value(proposed), runner.counters.value(accepted)


def test_a_share_of_all_places_is_right_and_the_same_for_the_same_seed() -> None:
    seats, lengths = torch.tensor([0, 3]), torch.tensor([1, 1])
    script = ScriptedAcceptance(0.75, 7, HOST)
    right = script.right(seats, lengths, PLACES)
    assert right.sum(1).tolist() == [3 * PLACES // 4] * 2
    assert not torch.equal(right[0], right[1])
    assert torch.equal(script.right(seats, lengths + 5, 9), right[:, 5:14])
    assert torch.equal(ScriptedAcceptance(0.75, 7, HOST).right(seats, lengths, PLACES), right)
    assert not torch.equal(ScriptedAcceptance(0.75, 8, HOST).right(seats, lengths, PLACES), right)


def test_texts_go_on_by_the_drafts_that_count_as_right(started: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = random_prompts(3)
    plain = answers(started(), prompts, 20, ignore_eos=True)
    monkeypatch.setenv("GRAPHPOD_DEBUG", "seats")
    monkeypatch.setenv("GRAPHPOD_ACCEPTANCE", "0")
    wrong = started(**NGRAM)
    assert answers(wrong, prompts, 20, ignore_eos=True) == plain
    proposed, accepted = counted(wrong)
    assert proposed > 0
    assert accepted == 0
    monkeypatch.setenv("GRAPHPOD_ACCEPTANCE", "1:3")
    right = started(**NGRAM, speculative_steps=4)
    assert "answers are not the model's" in right.report.warnings[0]
    assert isinstance(right.engine.seats, DraftingSeats)
    right.engine.seats.proposer = Always([9, 10, 11, 12])
    (answer,) = answers(right, prompts[:1], 41, ignore_eos=True)
    # Behind the prompt's own token each pass has four drafts, all right, and then a token of the model.
    assert len(answer.tokens) == 41
    assert [answer.tokens[first : first + 4] for first in range(1, 41, 5)] == [(9, 10, 11, 12)] * 8
    assert counted(right) == (32, 32)


def test_an_engine_without_drafts_does_not_start_with_a_script(started: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHPOD_ACCEPTANCE", "0.8")
    with pytest.raises(StartFailure, match="no speculative decoding") as caught:
        started()
    assert caught.value.code is ExitCode.SettingInvalid
