"""`spec.graph`: what is asked of CUDA graphs."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from graphpod_operator.api.base import ATOMIC, ApiModel, Bytes, Integer, PositiveDuration, Ruled, ValidationRule
from graphpod_policy import CompileMode, OnCaptureFailure, OnUnsupported, Policy
from graphpod_policy.limits import MOST_CONTEXT, MOST_SIZES

Size = Annotated[Integer, Field(ge=1, le=MOST_CONTEXT)]

Ladder = Annotated[
    tuple[Size, ...],
    Field(min_length=1, max_length=MOST_SIZES, json_schema_extra=ATOMIC),
    Ruled(
        ValidationRule(
            "self.isSorted()", "sizes must be in ascending order", lambda sizes: list(sizes) == sorted(sizes)
        ),
        ValidationRule(
            "self.all(x, self.exists_one(y, y == x))",
            "sizes must not repeat",
            lambda sizes: len(set(sizes)) == len(sizes),
        ),
    ),
]


class Sizes(ApiModel):
    """The ladders: which padded sizes get a graph."""

    prefill: Ladder | None = Field(
        None,
        description="Padded token counts that get a prefill graph, ascending. A batch takes the next larger size; "
        "sizes that the engine cannot reach are dropped. Default: the resolver's ladder, see status.graph.",
    )
    decode: Ladder | None = Field(
        None,
        description="Batch sizes that get a decode graph, ascending; with parallelism.data, those of one rank. A batch "
        "takes the next larger size. "
        "Default: the resolver's ladder.",
    )


class CaptureBudget(ApiModel):
    """The most that captures may take. The largest sizes are left out until the rest fits, and a decision says so."""

    memory: Bytes | None = Field(
        None,
        description="Bytes of the graphs of both phases on each GPU (rank), a quantity. "
        "Default: what the ladders take.",
    )
    time: PositiveDuration | None = Field(
        None, description="Time of the captures of both phases (90s, 5m). Default: what the ladders take."
    )


DECODE_POLICIES = (Policy.Auto, Policy.Full, Policy.Breakable, Policy.Disabled)


def _is_for_decode(value: object) -> object:
    if value not in DECODE_POLICIES:
        raise ValueError(f"must be one of {', '.join(DECODE_POLICIES)}")
    return value


DecodePolicy = Annotated[Policy, BeforeValidator(_is_for_decode)]
"""The schema has it as an enum of its own."""


class Graph(ApiModel):
    """Policies, sizes and budget of CUDA graphs. The answer is in status.graph."""

    prefill: Policy = Field(
        Policy.Auto,
        description=(
            "Graph policy of prefill. Breakable: captured in segments, attention runs between them. Piecewise: traced "
            "once, split at attention, each piece captured for each size. Full: one graph for the whole pass. "
            "Disabled: no graphs. Default: Auto (Breakable, else Piecewise, else Disabled)."
        ),
    )
    decode: DecodePolicy = Field(
        Policy.Auto,
        description=(
            "Graph policy of decode. Full: one graph for the whole step. Breakable: captured in segments, attention "
            "runs between them. Disabled: no graphs. Default: Auto (Full, else Breakable, else Disabled)."
        ),
        json_schema_extra={"enum": [policy.value for policy in DECODE_POLICIES]},
    )
    sizes: Sizes = Field(Sizes(), description="Sizes that get a graph. Default: the resolver's ladders.")
    compile: CompileMode = Field(
        CompileMode.Auto,
        description="How the two halves of a layer, before and after attention, are compiled before capture. "
        "Default: Auto (Inductor on a GPU, None on a CPU, whose image has no compiler).",
    )
    budget: CaptureBudget = Field(
        CaptureBudget(), description="The most that captures may take. Default: what the ladders take."
    )
    on_unsupported: OnUnsupported = Field(
        OnUnsupported.Degrade,
        description=(
            "When a rule excludes the requested policy: Degrade takes what Auto would take without it and records "
            "why, Fail refuses the service. A policy that is not built is refused either way. Default: Degrade."
        ),
    )
    on_capture_failure: OnCaptureFailure = Field(
        OnCaptureFailure.Degrade,
        description=(
            "When a capture or its self-check fails: Degrade runs a weaker policy and records why, Fail keeps "
            "the pod from getting Ready. Default: Degrade."
        ),
    )
    retries: Integer = Field(
        2,
        ge=0,
        le=10,
        description=(
            "Capture crashes tolerated before the operator falls back to the next weaker policy. A crash ends the "
            "engine's process, so the engine cannot fall back by itself. No effect with onCaptureFailure: Fail. "
            "Default: 2 (it falls back on the third crash)."
        ),
    )
