"""How many tokens: a number, a range, or a lognormal mix."""

import math
import re
from random import Random

import msgspec

SPELLINGS = "N, N-M or lognormal:MEDIAN:SIGMA:N-M"
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_LOGNORMAL = re.compile(r"lognormal:(\d+):(\d+(?:\.\d+)?):(\d+-\d+)")


class Length(msgspec.Struct, frozen=True):
    """Tokens from `least` to `most`, both allowed. Uniform, or with a `median` lognormal: exp(N(ln median, sigma)),
    and a draw outside the range is moved to its edge.
    """

    least: int
    most: int
    median: int | None = None
    sigma: float = 0.0

    def draw(self, rng: Random) -> int:
        """One length."""
        if self.least == self.most:
            return self.least
        if self.median is None:
            return rng.randint(self.least, self.most)
        drawn = min(rng.lognormvariate(math.log(self.median), self.sigma), self.most)
        return max(self.least, round(drawn))

    def __str__(self) -> str:
        """As `length_of` reads it."""
        bounds = str(self.least) if self.least == self.most else f"{self.least}-{self.most}"
        if self.median is None:
            return bounds
        return f"lognormal:{self.median}:{self.sigma:g}:{self.least}-{self.most}"


def length_of(word: str) -> Length:
    """Reads a spelling of a length. ValueError says what a word lacks; lengths are 1 or more."""
    if mixed := _LOGNORMAL.fullmatch(word):
        bounds = length_of(mixed[3])
        median = int(mixed[1])
        if not bounds.least <= median <= bounds.most:
            raise ValueError(f"{word!r}: the median {median} is outside {bounds}")
        return Length(bounds.least, bounds.most, median, float(mixed[2]))
    if not (plain := _RANGE.fullmatch(word)):
        raise ValueError(f"{word!r} is no length; write {SPELLINGS}")
    least, most = int(plain[1]), int(plain[2] or plain[1])
    if least < 1 or most < least:
        raise ValueError(f"{word!r} is no length: at least 1, and the smaller number first")
    return Length(least, most)
