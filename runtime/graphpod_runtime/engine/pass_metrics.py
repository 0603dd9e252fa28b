"""What the runner counts of every pass once it has landed: one that failed is not counted.

A pass looks nothing up by name: its series are made once, at Ready. Those of a ladder exist for every captured size,
so that a rate has its first sample; `graphpod advise` reads them, and the operator for `status.graph.advice`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from graphpod_policy import Backend, FallbackReason, Phase, Policy
from graphpod_runtime.engine.forward.graph_choice import Ladder
from graphpod_runtime.engine.forward.pass_in_flight import Ran
from graphpod_runtime.wire.counters import Counters
from graphpod_runtime.wire.series import Add, Observe


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
        self._fallbacks: dict[tuple[Phase, FallbackReason], Add] = {}
        """Of the reasons that were met."""

    def landed(self, ran: Ran, device_seconds: float) -> None:
        """The device took so long for a pass."""
        phase = self._phases[ran.phase]
        passes, launched, landed = phase.by_policy[ran.policy]
        passes()
        launched(ran.launch_seconds)
        landed(device_seconds)
        if ran.code_runs:
            phase.ran_code(ran.code_runs)
        # the one reason of passes that another ladder with the same largest size could replay
        if not isinstance(ran.choice, FallbackReason) or ran.choice is FallbackReason.PaddingGate:
            phase.requested(-(-ran.rows // phase.width))
        if isinstance(ran.choice, FallbackReason):
            self._fell_back(ran.phase, FallbackReason.Recompiled if ran.recompiled else ran.choice)
            return
        series, padding = phase.by_size[ran.choice], ran.choice - ran.rows
        series.of_size()
        series.padding_of_size(padding // phase.width)
        series.replays()
        series.real(ran.rows)
        series.padding(padding)

    def _fell_back(self, phase: Phase, reason: FallbackReason) -> None:
        if (add := self._fallbacks.get((phase, reason))) is None:
            add = self._fallbacks[phase, reason] = self._counters.adder(
                "graphpod_graph_fallbacks_total", phase=phase, reason=reason, backend=self._backend
            )
        add()

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
