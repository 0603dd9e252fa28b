"""The closed list of tests that our server does not pass on purpose, each with its reason."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("refusals.toml")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why these tests of one suite are refused. An id may have `*` for any text. `chance`: whether they may pass by
    chance, because they draw an answer, or assert the words of a model.
    """

    suite: str
    reason: str
    tests: tuple[str, ...]
    chance: bool = False

    def holds(self, test: str) -> str | None:
        """The pattern that names the test."""
        return next((one for one in self.tests if _matches(one, test)), None)


def refusals() -> tuple[Refusal, ...]:
    """The list."""
    return tuple(
        Refusal(row["suite"], row["reason"], tuple(row["tests"]), row.get("chance", False))
        for row in tomllib.loads(TABLE.read_text())["refused"]
    )


def refusal(suite: str, test: str, listed: Sequence[Refusal]) -> Refusal | None:
    """The row that refuses this test, or None."""
    return next((one for one in listed if one.suite == suite and one.holds(test)), None)


def unused(suite: str, tests: Iterable[str], listed: Sequence[Refusal]) -> list[str]:
    """Patterns of a suite that name none of its tests: the list is longer than it has to be."""
    every = list(tests)
    return [
        pattern
        for one in listed
        if one.suite == suite
        for pattern in one.tests
        if not any(_matches(pattern, test) for test in every)
    ]


def _matches(pattern: str, test: str) -> bool:
    return re.fullmatch(".*".join(re.escape(part) for part in pattern.split("*")), test) is not None
