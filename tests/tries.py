"""How many values a property tries that is worth more or fewer of them than most."""

from typing import Any

from hypothesis import settings

USUAL = 100
"""Of a property that says nothing, with the values of `make test`."""


def tries(count: int, **more: Any) -> settings:
    """So many with `make test`, and with `make search` as many times more as every other property tries there."""
    return settings(max_examples=count * settings.default.max_examples // USUAL, **more)
