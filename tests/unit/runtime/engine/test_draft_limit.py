"""How many sequences have drafts at most, by what passes cost."""

import pytest

from graphpod_runtime.engine.start.limits.draft_limit import draft_limit


@pytest.mark.parametrize(
    ("times", "limit"),
    [
        ({4: 1.0, 8: 1.0, 16: 1.1, 32: 1.2}, 8),
        ({4: 1.0, 8: 1.0, 16: 1.1, 32: 2.0}, 4),
        ({4: 1.0, 8: 2.0, 16: 2.0, 32: 2.0}, 1),
        ({4: 1.0}, 1),
    ],
)
def test_the_largest_batch_whose_drafts_pay(times: dict[int, float], limit: int) -> None:
    """A plain pass of as many sequences runs on a graph of the same ladder."""
    assert draft_limit(sorted(times), 4, times.__getitem__) == limit


def test_what_lies_above_a_batch_that_does_not_pay_is_not_measured() -> None:
    asked: list[int] = []

    def seconds(size: int) -> float:
        asked.append(size)
        return float(size)

    assert draft_limit((4, 8, 16, 32), 4, seconds) == 1
    assert asked == [4, 8]
