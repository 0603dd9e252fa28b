"""Quantities in the API server's own form."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_operator.api import quantity


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("512", "512"),
        ("2000k", "2M"),
        (1000000, "1M"),
        ("0", "0"),
        ("0.0", "0"),
        ("1.5", "1500m"),
        ("0.5Ki", "512"),
        ("1.0001Ki", "1024103m"),
        ("0.000000001", "1m"),
        ("100000000000000P", "100000000000E"),
        ("123456789Ti", "9223372036854775807"),
        ("1e9", "1e9"),
        ("1E+10", "10e9"),
        ("1.5e3", "1500"),
        ("0.0001e0", "1e-3"),
        ("500e-3", "500e-3"),
        ("1000e-3", "1"),
    ],
)
def test_a_quantity_is_written_as_the_api_server_writes_it(text: str | int, canonical: str) -> None:
    assert quantity.canonical(text) == canonical


DECIMAL = {"m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def exact(text: str) -> Fraction:
    """The value by arithmetic of its own."""
    number = text.rstrip("mkKMGTPEi")
    suffix = text[len(number) :]
    return Fraction(number) * (BINARY[suffix] if suffix in BINARY else Fraction(10) ** DECIMAL[suffix])


@given(st.decimals(0, 10**6, places=3), st.sampled_from(["", "m", "k", "M", "G", "T", *BINARY]))
def test_the_canonical_form_keeps_the_value_up_to_a_thousandth(number: Decimal, suffix: str) -> None:
    text = f"{number:f}{suffix}"
    assert 0 <= exact(quantity.canonical(text)) - exact(text) < Fraction(1, 1000)


@pytest.mark.parametrize("text", ["", "-1", "1e", "1e19", "1e-10", "1Gie3", "abc", "1 Gi", "1gb", "NaN", "inf", "١"])
def test_what_is_no_quantity_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity.value(text)


def test_whole_rounds_up() -> None:
    assert quantity.whole("1500m") == 2
    assert quantity.whole("1.5Gi") == 1610612736
