"""Which graph runs a batch, or the one reason why none does."""

from bisect import bisect_left
from dataclasses import dataclass, replace

from graphpod_policy import Batch, FallbackReason, Phase, Policy, refusing_gate
from graphpod_policy.rules import GATES
from graphpod_runtime.base.inputs import Inputs


@dataclass(frozen=True, slots=True)
class Ladder:
    """What a phase can run now. `planned` and `captured` are ascending sizes, `gates` those of the plan that speak
    about this phase and policy; `ready` latches after warm-up; `forced_eager` is a debug mode.
    """

    phase: Phase
    policy: Policy
    planned: tuple[int, ...]
    captured: tuple[int, ...]
    gates: tuple[str, ...]
    ready: bool
    forced_eager: bool = False


def gates_of(names: tuple[str, ...], phase: Phase, policy: Policy) -> tuple[str, ...]:
    """Of a plan's gates, those that a batch of `phase` under `policy` can meet, in their order."""
    return tuple(name for name in names if phase in GATES[name].phases and policy in GATES[name].policies)


def choices(ladder: Ladder) -> tuple[int | FallbackReason, ...]:
    """The answer of `dispatch` for every number of rows from 0 to the planned ladder's end, where a pass asks for
    nothing that a gate would refuse but its rows."""
    rows = range(max(ladder.planned, default=0) + 1)
    return tuple(dispatch(ladder, Batch(ladder.phase, ladder.policy, count, count)) for count in rows)


def asked_of_gates(inputs: Inputs) -> Batch:
    """What gates may ask of a pass. What belongs to features that this engine does not have keeps its default."""
    return Batch(
        phase=inputs.phase,
        policy=Policy.Disabled,
        rows=inputs.count,
        padded=inputs.count,
        requests=len(inputs.yields),
        input_logprobs=inputs.input_logprobs,
    )


def dispatch(ladder: Ladder, batch: Batch) -> int | FallbackReason:
    """The captured size that runs `batch`, or why it runs eagerly: the first of these reasons, in this order, then the
    gates in the plan's order. The ladder fills in the batch's `policy` and `padded`.
    """
    if ladder.policy is Policy.Disabled:
        return FallbackReason.Disabled
    if not ladder.ready:
        return FallbackReason.WarmingUp
    if ladder.forced_eager:
        return FallbackReason.ForcedEager
    if not ladder.planned or batch.rows > ladder.planned[-1]:
        return FallbackReason.SizeAboveLadder
    at = bisect_left(ladder.captured, batch.rows)
    if at == len(ladder.captured):
        return FallbackReason.NotCaptured
    size = ladder.captured[at]
    if not ladder.gates:
        return size
    return refusing_gate(ladder.gates, replace(batch, policy=ladder.policy, padded=size)) or size
