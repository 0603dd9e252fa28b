"""The gaps of a ladder: lengths that PaddingGate sends to the eager path, and the sizes that close them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_policy.ladder.ladder import prefill_ladder
from graphpod_policy.rules import padding_refused
from graphpod_policy.rules.gates import closing, gaps

ladders = st.sets(st.integers(1, 3000), min_size=1, max_size=10).map(lambda sizes: tuple(sorted(sizes)))


@given(ladders)
def test_the_gaps_are_exactly_the_lengths_that_the_gate_refuses(sizes: tuple[int, ...]) -> None:
    padded = {rows: next(size for size in sizes if size >= rows) for rows in range(1, sizes[-1] + 1)}
    refused = {rows for rows, size in padded.items() if padding_refused(rows, size)}
    assert refused == {rows for gap in gaps(sizes) for rows in range(gap.first, gap.last + 1)}


@given(ladders)
def test_the_sizes_that_are_advised_close_every_gap(sizes: tuple[int, ...]) -> None:
    added = closing(sizes)
    assert gaps(tuple(sorted({*sizes, *added}))) == ()
    assert (added == ()) == (gaps(sizes) == ())
    assert not set(added) & set(sizes)


def test_the_ladder_of_the_review_has_the_gaps_that_were_seen() -> None:
    assert gaps((16, 64, 256, 1024)) == ((65, 127), (257, 511))
    assert closing((16, 64, 256, 1024)) == (128, 512)


@pytest.mark.parametrize("maximum", [1, 64, 100, 256, 1000, 8192, 16384])
def test_default_ladders_have_none(maximum: int) -> None:
    assert gaps(prefill_ladder(maximum)) == ()
