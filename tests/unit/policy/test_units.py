"""Amounts as people read them."""

import pytest

from graphpod_policy.units import as_quantity, count, duration, size

GIB = 1 << 30


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (99_999, "99999"), (100_000, "100k"), (999_400, "999k"), (123_456_789, "123.5M")]
)
def test_counts_are_read_at_a_glance(number: int, text: str) -> None:
    assert count(number) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (3 * GIB // 2, "1.5 GiB"), (120 * GIB + 1, "120 GiB")],
)
def test_estimates_have_at_most_one_decimal(amount: int, text: str) -> None:
    assert size(amount) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (200 * GIB, "200Gi"),
        (2048 * GIB, "2Ti"),
        (1536 << 20, "1536Mi"),
        (10**9, "1G"),
        (1_500_000_000, "1500M"),
        (12345, "12345"),
    ],
)
def test_what_somebody_wrote_is_a_quantity_again(amount: int, text: str) -> None:
    assert as_quantity(amount) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.26, "0.3 s"), (41.2, "41 s"), (599, "599 s"), (3600, "60 min"), (8423, "2.3 h"), (604800, "168 h")],
)
def test_durations_are_seconds_minutes_or_hours(seconds: float, text: str) -> None:
    assert duration(seconds) == text
