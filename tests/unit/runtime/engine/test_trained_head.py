"""The EAGLE head in the repository, on the model it was trained for."""

import pytest

from demo.weights import model_folder
from draft_heads.measure import DRAFTS, TRAINED, measured


@pytest.mark.parametrize("questions", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_most_passes_bring_more_than_one_token_and_no_answer_changes(questions: int) -> None:
    found = measured(model_folder(), TRAINED, "cpu", questions=questions, tokens=24)

    assert found["answersEqual"] == found["answers"] == questions
    assert 1.6 <= found["acceptanceLength"] <= 1 + DRAFTS
