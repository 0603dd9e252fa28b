"""What the runner counts of every pass once it has landed: one that failed is not counted.

A pass looks nothing up: what the first one of its kind adds to which series, the others add again. The series of a
ladder are made at Ready, for every captured size, so that a rate has its first sample. `graphpod advise` reads them,
and the operator for `status.graph.advice`.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from graphpod_policy import Backend, FallbackReason, Phase, Policy
from graphpod_runtime.engine.forward.graph_choice import Ladder
from graphpod_runtime.wire.counters import Counters
from graphpod_runtime.wire.series import Add, Observe, Together

KINDS = 4096
"""Of passes, that are remembered: a kind has its number of rows."""


class _Passes(NamedTuple):
    """Of the passes of a phase that ran by one policy."""

    passes: Add
    launched: Observe
    landed: Observe


class _Replays(NamedTuple):
    """Of the replays of one size; `replays`, `real` and `padding` are those of its phase."""

    of_size: Add
    padding_of_size: Add
    replays: Add
    real: Add
    padding: Add


class _Phase(NamedTuple):
    """Of one phase. `requested`: rows before padding, of passes that a ladder of this length could run. Sizes and
    requests count sequences of `width` rows, as the ladder of the spec does."""

    by_policy: dict[Policy, _Passes]
    by_size: dict[int, _Replays]
    requested: Observe
    ran_code: Add
    width: int


class PassMetrics:
    """Counts the passes of a started engine."""

    def __init__(
        self, counters: Counters, ladders: Mapping[Phase, Ladder], backend: Backend, verify_width: int = 1
    ) -> None:
        """`verify_width`: rows of a sequence on a decode graph."""
        self._counters, self._backend, self._verify_width = counters, backend, verify_width
        self._phases = {phase: self._phase(phase, ladder) for phase, ladder in ladders.items()}
        self.of = lru_cache(KINDS)(self._of)

    def _of(
        self,
        phase: Phase,
        policy: Policy,
        rows: int,
        choice: int | FallbackReason,
        recompiled: bool,
        code_runs: int,
    ) -> Together:
        """Counts one pass of this `Ran.kind`: called with the seconds of its launch, and those that the device took."""
        series = self._phases[phase]
        passes, launched, landed = series.by_policy[policy]
        same: list[tuple[Add | Observe, float]] = [(passes, 1)]
        if code_runs:
            same.append((series.ran_code, code_runs))
        # the one reason of passes that another ladder with the same largest size could replay
        if not isinstance(choice, FallbackReason) or choice is FallbackReason.PaddingGate:
            same.append((series.requested, -(-rows // series.width)))
        if isinstance(choice, FallbackReason):
            same.append((self._fallbacks(phase, FallbackReason.Recompiled if recompiled else choice), 1))
        else:
            of, padding = series.by_size[choice], choice - rows
            same += [(of.of_size, 1), (of.padding_of_size, padding // series.width), (of.replays, 1)]
            same += [(of.real, rows), (of.padding, padding)]
        return Together(same, (launched, landed))

    def _fallbacks(self, phase: Phase, reason: FallbackReason) -> Add:
        own = {"phase": phase, "reason": reason, "backend": self._backend}
        return self._counters.adder("graphpod_graph_fallbacks_total", **own)

    def _phase(self, phase: Phase, ladder: Ladder) -> _Phase:
        width = self._verify_width if phase is Phase.Decode else 1
        return _Phase(
            by_policy={policy: self._passes(phase, policy) for policy in {ladder.policy, Policy.Disabled}},
            by_size={size: self._replays(phase, ladder.policy, size // width) for size in ladder.captured},
            requested=self._counters.observer("graphpod_graph_requested_rows", phase=phase, backend=self._backend),
            ran_code=self._counters.adder("graphpod_eager_passes_total", phase=phase),
            width=width,
        )

    def _replays(self, phase: Phase, policy: Policy, size: int) -> _Replays:
        adder, own = self._counters.adder, {"phase": phase, "backend": self._backend}
        return _Replays(
            adder("graphpod_graph_size_replays_total", policy=policy, size=str(size), **own),
            adder("graphpod_graph_size_padding_tokens_total", policy=policy, size=str(size), **own),
            adder("graphpod_graph_replays_total", policy=policy, **own),
            adder("graphpod_graph_tokens_total", kind="real", **own),
            adder("graphpod_graph_tokens_total", kind="padding", **own),
        )

    def _passes(self, phase: Phase, policy: Policy) -> _Passes:
        own = {"phase": phase, "policy": policy}
        return _Passes(
            self._counters.adder("graphpod_forward_passes_total", **own),
            self._counters.observer("graphpod_forward_launch_duration_seconds", **own),
            self._counters.observer("graphpod_forward_duration_seconds", **own),
        )
