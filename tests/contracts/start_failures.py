"""Starts that end."""

from collections.abc import Callable
from typing import Any

import pytest

from graphpod_policy import Policy
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.engine.runner import Runner


def failure_of(started: Callable[..., Runner], prefill: Policy, decode: Policy, **changes: Any) -> StartFailure:
    """What a start with these policies ends with."""
    with pytest.raises(StartFailure) as caught:
        started(prefill, decode, **changes)
    return caught.value
