"""The EAGLE head in the repository, on the model it was trained for."""

from demo.weights import model_folder
from draft_heads.measure import DRAFTS, TRAINED, measured


def test_most_passes_bring_more_than_one_token_and_no_answer_changes() -> None:
    found = measured(model_folder(), TRAINED, "cpu", questions=2, tokens=24)

    assert found["answersEqual"] == found["answers"] == 2
    assert 1.6 <= found["acceptanceLength"] <= 1 + DRAFTS
