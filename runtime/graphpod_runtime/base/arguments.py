"""Words of a command line as values. An unknown word is refused, and the message lists the known ones."""

from argparse import ArgumentTypeError
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from graphpod_policy import Policy
from graphpod_policy.limits import own_ladder
from graphpod_policy.units import bytes_of

Word = TypeVar("Word", bound=StrEnum)
Number = TypeVar("Number", int, float)

POLICIES = f"{', '.join(Policy)}; default: %(default)s"
"""Help for the option of a phase's policy."""


def one_of(words: type[Word]) -> Callable[[str], Word]:
    """For argparse's `type`: a member of `words`, spelled as it is there."""

    def member(word: str) -> Word:
        if word not in list(words):
            raise ArgumentTypeError(f"{word!r} is not one of {', '.join(words)}")
        return words(word)

    return member


def number(kind: type[Number], least: Number, most: Number | None = None) -> Callable[[str], Number]:
    """For argparse's `type`: a number from `least` to `most`, both allowed."""
    bounds = f"{least} or more" if most is None else f"{least} to {most}"

    def value(word: str) -> Number:
        try:
            found = kind(word)
        except ValueError:
            raise ArgumentTypeError(f"{word!r} is not a number, {bounds}") from None
        if not least <= found or (most is not None and found > most):
            raise ArgumentTypeError(f"{word} is not {bounds}")
        return found

    return value


def memory(word: str) -> int:
    """For argparse's `type`: bytes, as a quantity of Kubernetes from 1Mi to 64Ti."""
    try:
        found = bytes_of(word)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    if not 1 << 20 <= found <= 1 << 46:
        raise ArgumentTypeError(f"{word} is not 1Mi to 64Ti")
    return found


def sizes(word: str) -> tuple[int, ...]:
    """For argparse's `type`: the sizes of a ladder between commas, ascending, each once."""
    whole = number(int, 1)
    try:
        return own_ladder(whole(part) for part in word.split(","))
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def portable(word: str) -> str:
    """A word of a command line as another machine would have it: of an absolute path, its name."""
    return Path(word).name if Path(word).is_absolute() else word
