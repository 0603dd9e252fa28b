"""Passes that have run, for those who count them."""

from graphpod_policy import FallbackReason, Phase, Policy
from graphpod_runtime.engine.forward.pass_in_flight import Moment, Ran


def ran(phase: Phase, policy: Policy, rows: int, choice: int | FallbackReason) -> Ran:
    """A pass of so many rows, on the graph of a size or eagerly for a reason."""
    eagerly = isinstance(choice, FallbackReason)
    return Ran(phase, policy, rows, choice, False, int(eagerly), Moment(None), launch_seconds=0.001)
