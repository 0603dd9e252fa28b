"""What a command line refuses, it explains."""

import argparse
from typing import Any

import pytest

from graphpod_policy import Policy
from graphpod_runtime.base.arguments import number, one_of, sizes


@pytest.mark.parametrize(
    ("kind", "word", "value"),
    [
        (one_of(Policy), "Breakable", Policy.Breakable),
        (number(int, 0, 65535), "65535", 65535),
        (number(int, 1), "100000", 100000),
        (number(float, 0.5, 1.0), "0.5", 0.5),
        (sizes, "64,8,64", (8, 64)),
    ],
)
def test_a_word_is_its_value(kind: Any, word: str, value: object) -> None:
    assert kind(word) == value


@pytest.mark.parametrize(
    ("kind", "word", "told"),
    [
        (one_of(Policy), "breakable", "'breakable' is not one of Auto, Piecewise, Breakable, Full, Disabled"),
        (number(int, 0, 65535), "65536", "65536 is not 0 to 65535"),
        (number(int, 1), "0", "0 is not 1 or more"),
        (number(int, 1), "many", "'many' is not a number, 1 or more"),
        (number(float, 0.5, 1.0), "nan", "nan is not 0.5 to 1.0"),
        (sizes, "8,,9", "'' is not a number, 1 or more"),
    ],
)
def test_another_word_is_refused_and_told_what_would_be_right(kind: Any, word: str, told: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        kind(word)
    assert str(refused.value) == told
