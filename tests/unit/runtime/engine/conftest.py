"""Engines that tests of a file share."""

from collections.abc import Callable

import pytest

from graphpod_policy import Policy
from graphpod_runtime.engine.runner import Runner


@pytest.fixture(scope="module")
def undrafted_so_far() -> dict[tuple[Policy, ...], Runner]:
    return {}


@pytest.fixture
def undrafted(
    started: Callable[..., Runner], undrafted_so_far: dict[tuple[Policy, ...], Runner]
) -> Callable[..., Runner]:
    """undrafted(prefill, decode) → an engine without drafts, to compare with. Each is started once."""

    def start(*policies: Policy) -> Runner:
        if policies not in undrafted_so_far:
            undrafted_so_far[policies] = started(*policies)
        return undrafted_so_far[policies]

    return start
