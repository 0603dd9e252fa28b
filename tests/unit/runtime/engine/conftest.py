"""Engines that tests of a file share."""

from collections.abc import Callable

import pytest

from graphpod_policy import Policy
from graphpod_runtime.engine.runner import Runner

USUAL = (Policy.Breakable, Policy.Full)
SoFar = dict[tuple[object, ...], Runner]


@pytest.fixture(scope="module")
def undrafted_so_far() -> SoFar:
    return {}


@pytest.fixture(scope="module")
def drafting_so_far() -> SoFar:
    return {}


@pytest.fixture
def undrafted(started: Callable[..., Runner], undrafted_so_far: SoFar) -> Callable[..., Runner]:
    """undrafted(prefill, decode) → an engine without drafts, to compare with. Each is started once."""

    def start(*asked: Policy) -> Runner:
        policies = asked or USUAL
        if policies not in undrafted_so_far:
            undrafted_so_far[policies] = started(*policies)
        return undrafted_so_far[policies]

    return start


@pytest.fixture
def drafting(started: Callable[..., Runner], drafting_so_far: SoFar) -> Callable[..., Runner]:
    """drafting(prefill, decode, **config changes) → as `undrafted`, for tests that say what is drafted (`knows`) and
    leave all pages free. Its counters go on from test to test.
    """

    def start(*asked: Policy, **changes: object) -> Runner:
        policies = asked or USUAL
        key = (*policies, *sorted(changes.items()))
        if key not in drafting_so_far:
            drafting_so_far[key] = started(*policies, **changes)
        return drafting_so_far[key]

    return start
