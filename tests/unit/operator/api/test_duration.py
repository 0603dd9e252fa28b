"""Durations: one number, one unit."""

import pytest

from graphpod_operator.api import duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("1.5m", 90.0), ("200ms", 0.2), ("2h", 7200.0), ("0s", 0.0), ("0.001ms", 1e-6)]
)
def test_a_duration_is_read_exactly(text: str, seconds: float) -> None:
    assert duration.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "s", "-1s", "1d", "1m30s", "1 s", "1s\n", "1.0001s", "1234567s"])
def test_anything_else_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration.seconds(text)
