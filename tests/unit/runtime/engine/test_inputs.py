"""Inputs of one pass, where a batch says what cannot be."""

import pytest

from graphpod_runtime.engine.inputs import inputs_of
from graphpod_runtime.engine.sequence import Batch, Chunk, DecodeBatch, PrefillBatch, Sequence

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
    assert inputs_of(batch, PAGE).metadata.slots.tolist() == [*range(PAGE, 4 * PAGE), *range(4 * PAGE, 5 * PAGE)]
