"""Inputs of one pass, where a batch says what cannot be."""

import pytest

from graphpod_runtime.engine.forward.inputs import inputs_of
from graphpod_runtime.engine.schedule.batch import Batch, Chunk, DecodeBatch, PrefillBatch
from graphpod_runtime.engine.schedule.sequence import Sequence

PAGE = 4


def owning(pages: list[int], tokens: int, id: str = "") -> Sequence:
    return Sequence(id, list(range(tokens)), tokens, 1, pages=pages)


WIDE = owning([1, 2, 3], 3 * PAGE)
SHORT = owning([4], PAGE + 1, "short")


@pytest.mark.parametrize(
    "batch",
    [DecodeBatch((WIDE, SHORT)), PrefillBatch((Chunk(WIDE, 0, 3 * PAGE), Chunk(SHORT, 0, PAGE + 1)))],
)
def test_a_sequence_a_page_short_is_refused_though_another_makes_the_table_wide_enough(batch: Batch) -> None:
    with pytest.raises(IndexError, match=r"'short' owns 1 pages of 4 tokens .* its token 5: .* must take 2 pages"):
        inputs_of(batch, PAGE)


def test_a_full_last_page_is_enough_and_later_tokens_need_none_yet() -> None:
    batch = PrefillBatch((Chunk(WIDE, 0, 3 * PAGE), Chunk(SHORT, 0, PAGE)))
    assert inputs_of(batch, PAGE).slots.tolist() == [*range(PAGE, 4 * PAGE), *range(4 * PAGE, 5 * PAGE)]


def test_a_step_runs_the_last_token_of_each_sequence_over_all_its_tokens() -> None:
    inputs = inputs_of(DecodeBatch((owning([5, 2], 6), owning([7], 1), owning([1], PAGE))), PAGE)
    assert inputs.tokens.tolist() == [5, 0, 3]
    assert inputs.positions.tolist() == [5, 0, 3]
    assert inputs.slots.tolist() == [2 * PAGE + 1, 7 * PAGE, PAGE + 3]
    assert inputs.tables.tolist() == [[5, 2], [7, 0], [1, 0]]
    assert inputs.lengths.tolist() == [6, 1, 4]
    assert inputs.starts.tolist() == [0, 1, 2, 3]
    assert inputs.yields == (0, 1, 2)


def test_a_chunk_that_goes_on_begins_where_the_one_before_ended_and_yields_only_at_its_prompts_end() -> None:
    """The first goes on and stops short, the second goes on and ends, the third is a whole prompt."""
    chunks = (Chunk(owning([5, 2, 6], 10), 3, 6), Chunk(owning([7, 8], 6), 4, 6), Chunk(owning([1], 2), 0, 2))
    inputs = inputs_of(PrefillBatch(chunks), PAGE)
    assert inputs.tokens.tolist() == [3, 4, 5, 4, 5, 0, 1]
    assert inputs.positions.tolist() == [3, 4, 5, 4, 5, 0, 1]
    assert inputs.slots.tolist() == [23, 8, 9, 32, 33, 4, 5]
    assert inputs.lengths.tolist() == [6, 6, 2]
    assert inputs.starts.tolist() == [0, 3, 5, 7]
    assert inputs.yields == (-1, 4, 6)
