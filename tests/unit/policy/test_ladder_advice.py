"""Advice on a ladder: the optimum against all ladders, the promise against a count, and when nothing is said."""

from bisect import bisect_left
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_policy import Phase
from graphpod_policy.ladder.advice import (
    LEAST_PASSES,
    UNSEEN,
    LadderUse,
    SizeUse,
    Verdict,
    advice,
    is_like,
    ladders,
    optimal,
    padded,
    still_good,
)
from graphpod_policy.ladder.ladder import Ladder, decode_ladder, prefill_ladder
from graphpod_policy.metrics import GRAPH_ROWS
from graphpod_policy.rules import padding_refused
from graphpod_policy.rules.gates import gaps

GRID = frozenset(GRAPH_ROWS)


def served(phase: Phase, ladder: Ladder, passes: list[int]) -> LadderUse:
    """The use of a ladder by passes of these rows, counted one by one as the engine does."""
    replays, padding = dict.fromkeys(ladder, 0), dict.fromkeys(ladder, 0)
    requested, rows, above = [0] * (len(GRAPH_ROWS) + 1), 0, 0
    for count in passes:
        if count > ladder[-1]:
            above += 1
            continue
        requested[bisect_left(GRAPH_ROWS, count)] += 1
        rows += count
        size = ladder[bisect_left(ladder, count)]
        if phase is Phase.Prefill and padding_refused(count, size):
            continue
        replays[size] += 1
        padding[size] += size - count
    sizes = tuple(SizeUse(size, replays[size], padding[size]) for size in ladder)
    return LadderUse(phase, sizes, tuple(requested), rows, above)


tops = st.lists(st.integers(1, 400), min_size=1, max_size=9, unique=True).map(lambda sizes: tuple(sorted(sizes)))


@given(tops, st.data(), st.booleans())
def test_the_optimum_is_the_best_of_all_ladders(tops: Ladder, data: st.DataObject, gated: bool) -> None:
    weights = data.draw(st.lists(st.integers(0, 50), min_size=len(tops), max_size=len(tops)))
    found = optimal(tops, weights, len(tops), gated)
    assert len(found) == len(tops)

    def judged(ladder: Ladder) -> tuple[int, int]:
        """Rows of gaps, then rows computed."""
        low, gap = 0, 0
        for size in ladder:
            gap += max(0, size - max(2 * (low + 1), low + 1 + 64)) if gated else 0
            low = size
        return gap, sum(ladder[bisect_left(ladder, top)] * weight for top, weight in zip(tops, weights, strict=True))

    for count, ladder in enumerate(found, 1):
        every = [(*rest, tops[-1]) for rest in combinations(tops[:-1], count - 1)]
        assert ladder in every
        assert judged(ladder) == min(map(judged, every))
        assert (judged(ladder)[0] == 0) == (not (gated and gaps(ladder)))


@given(
    st.sampled_from(Phase),
    st.integers(1, 600),
    st.lists(st.integers(1, 700), min_size=1, max_size=200),
)
def test_the_promise_is_what_the_better_ladder_pads_for_the_same_passes(
    phase: Phase, largest: int, passes: list[int]
) -> None:
    today = prefill_ladder(largest) if phase is Phase.Prefill else decode_ladder(largest)
    use = served(phase, today, passes)
    better = ladders(use, len(today))[-1]
    assert is_like(better, today)
    promised = padded(use, better)
    assert promised is not None  # the default ladders have no gaps, so that as many sizes can be without any
    again = served(phase, better, passes)
    assert (again.padding, again.refused, again.above) == (promised, 0, use.above)


@given(st.integers(1, 512), st.lists(st.integers(1, 600), min_size=1, max_size=100))
def test_no_ladder_of_as_many_default_sizes_computes_fewer_rows(largest: int, passes: list[int]) -> None:
    """One pass in UNSEEN is assumed to be any other: by so much the default may be better on what was seen."""
    today = decode_ladder(largest)
    use = served(Phase.Decode, today, passes)
    better = ladders(use, len(today))[-1]
    promised = padded(use, better)
    assert promised is not None
    assert promised - use.padding <= use.passes * largest / (UNSEEN - 1)


def test_a_service_that_always_runs_three_and_six_sequences_gets_these_sizes() -> None:
    given_sizes = (1, 2, 4, 8)
    said = advice(served(Phase.Decode, given_sizes, [3] * 700 + [6] * 700))
    assert said.verdict is Verdict.Change
    assert said.better == (3, 4, 6, 8) or said.better == (2, 3, 6, 8) or said.better == (1, 3, 6, 8)
    assert (said.use.padding, said.promised, said.saved) == (700 + 1400, 0, 2100)
    assert said.use.unused == (1, 2)
    assert said.fewest is not None
    assert len(said.fewest) < len(given_sizes)
    assert said.fewest[-1] == 8


@pytest.mark.parametrize(
    ("ladder", "passes", "verdict"),
    [
        ((), [], Verdict.NoGraphs),
        ((1, 2, 4, 8), [3] * (LEAST_PASSES - 1), Verdict.TooFewPasses),
        ((1, 2, 4, 8), [3] * LEAST_PASSES, Verdict.Change),
        ((1, 2, 4, 8), [1, 2, 4, 8] * 500, Verdict.Keep),
        ((1, 2, 4, 8), [8] * 5000 + [7], Verdict.Keep),
        ((8,), [3] * 5000, Verdict.Keep),  # a single size is the largest
    ],
)
def test_too_little_data_and_too_small_a_gain_change_nothing(
    ladder: Ladder, passes: list[int], verdict: Verdict
) -> None:
    said = advice(served(Phase.Decode, ladder, passes) if ladder else LadderUse(Phase.Decode, (), (0,) * 113, 0))
    assert said.verdict is verdict
    assert (said.better is None) == (said.promised is None) == (verdict is not Verdict.Change)


def test_passes_that_the_gate_refused_replay_on_the_better_ladder() -> None:
    today = (16, 32, 256, 512)
    passes = [40] * 3000 + [200] * 100
    use = served(Phase.Prefill, today, passes)
    assert use.refused == 3000  # 40 rows on a graph of 256
    said = advice(use)
    assert said.verdict is Verdict.Change
    assert said.better is not None
    again = served(Phase.Prefill, said.better, passes)
    assert (again.refused, again.padding) == (0, said.promised)


def test_a_ladder_with_too_few_sizes_to_close_its_gaps_is_kept() -> None:
    assert advice(served(Phase.Prefill, (16, 2048), [900] * 3000)).verdict is Verdict.Keep


def test_an_advice_stays_while_it_is_nearly_as_good_as_the_best() -> None:
    today = (1, 2, 4, 8)
    before = advice(served(Phase.Decode, today, [3] * 1000 + [6] * 1000)).better
    assert before is not None
    assert still_good(served(Phase.Decode, today, [3] * 3000 + [6] * 2000 + [5] * 20), before)
    assert not still_good(served(Phase.Decode, today, [5] * 3000), before)  # another is much better
    assert not still_good(served(Phase.Decode, today, [4, 8] * 3000), before)  # today's is good
    assert not still_good(served(Phase.Decode, today, [3] * 10), before)
    assert not still_good(served(Phase.Decode, (1, 2, 4, 8, 16), [3] * 3000), before)  # of another ladder
    assert not still_good(served(Phase.Decode, today, [3] * 3000), (3, 5, 7, 9))


@pytest.mark.parametrize(
    "wrong",
    [
        {"requested": (5,)},
        {"rows": -1},
        {"rows": 10**9},
        {"rows": 1},
        {"above": -1},
        {"sizes": (SizeUse(4, 0, 0), SizeUse(4, 0, 0))},
        {"sizes": (SizeUse(0, 0, 0),)},
        {"sizes": (SizeUse(4, 99, 0),)},
        {"sizes": (SizeUse(4, 1, -1),)},
    ],
)
def test_numbers_that_contradict_each_other_are_refused(wrong: dict[str, object]) -> None:
    counts = (0, 0, 3, *(0,) * (len(GRAPH_ROWS) - 2))
    right: dict[str, object] = {
        "phase": Phase.Decode,
        "sizes": (SizeUse(4, 3, 3),),
        "requested": counts,
        "rows": 9,
    }
    LadderUse(**right)  # type: ignore[arg-type]
    with pytest.raises(ValueError):  # noqa: PT011 each is one sentence
        LadderUse(**(right | wrong))  # type: ignore[arg-type]


def test_the_largest_ladder_of_all_is_judged_by_the_same_bounds() -> None:
    assert set(prefill_ladder(16384)) <= GRID
    assert set(decode_ladder(512)) <= GRID
