"""The service that an argument of a command names: NAME, or kind/NAME as kubectl takes it and prints it."""

from __future__ import annotations

import re

from graphpod_operator.api.names import GROUP, KIND, NAME_MAX, NAME_PATTERN, PLURAL, SHORT_NAME
from graphpod_operator.explain.input_error import InputError

KINDS = (SHORT_NAME, *(name + group for name in (PLURAL, KIND.lower()) for group in (f".{GROUP}", "")))
EXPECTED = f"expected NAME or {SHORT_NAME}/NAME of a live service"
HELP = f"a service in the cluster: NAME or {SHORT_NAME}/NAME"
_SHOWN = 80
"""Characters of an argument that a message repeats."""


def service_name(argument: str) -> str:
    """The name. Raises InputError for another kind, and for what no service can be named, such as a file."""
    kind, slash, name = argument.rpartition("/")
    is_name = len(name) <= NAME_MAX and re.fullmatch(NAME_PATTERN, name) is not None
    if not is_name or (slash and kind not in KINDS):
        raise InputError(f"{argument[:_SHOWN]}: {EXPECTED}")
    return name
