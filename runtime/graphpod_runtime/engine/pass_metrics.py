"""What the runner counts of every pass. A pass looks nothing up by name: its series are made once."""

from graphpod_policy import Backend, FallbackReason, Phase, Policy
from graphpod_runtime.wire.counters import Add, Counters, Observe


class PassMetrics:
    """The series of passes. Those of a phase and policy are made when the first such pass runs."""

    def __init__(self, counters: Counters, backend: Backend) -> None:
        self._counters, self._backend = counters, backend.value
        self._durations: dict[tuple[Phase, Policy], Observe] = {}
        self._launches: dict[tuple[Phase, Policy], Observe] = {}
        self._passes: dict[tuple[Phase, Policy], Add] = {}
        self._replays: dict[tuple[Phase, Policy], tuple[Add, Add, Add]] = {}
        self._fallbacks: dict[tuple[Phase, FallbackReason], Add] = {}
        self._eager = {phase: counters.adder("graphpod_eager_passes_total", phase=phase.value) for phase in Phase}

    def replayed(self, phase: Phase, policy: Policy, real: int, size: int) -> None:
        """A pass of `real` rows ran on the graph of `size`."""
        self._passed(phase, policy)
        if (series := self._replays.get((phase, policy))) is None:
            series = self._replays[phase, policy] = self._replay_series(phase, policy)
        replays, real_rows, padding_rows = series
        replays()
        real_rows(real)
        padding_rows(size - real)

    def fell_back(self, phase: Phase, reason: FallbackReason) -> None:
        """A pass ran eagerly."""
        self._passed(phase, Policy.Disabled)
        if (add := self._fallbacks.get((phase, reason))) is None:
            add = self._fallbacks[phase, reason] = self._counters.adder(
                "graphpod_graph_fallbacks_total", phase=phase.value, reason=reason.value, backend=self._backend
            )
        add()

    def ran_eagerly(self, phase: Phase) -> None:
        """The model's body ran outside any graph."""
        self._eager[phase]()

    def launched(self, phase: Phase, policy: Policy, seconds: float) -> None:
        """The host took so long to launch a pass."""
        self._observe(self._launches, "graphpod_forward_launch_duration_seconds", phase, policy)(seconds)

    def landed(self, phase: Phase, policy: Policy, seconds: float) -> None:
        """The device took so long for a pass."""
        self._observe(self._durations, "graphpod_forward_duration_seconds", phase, policy)(seconds)

    def _passed(self, phase: Phase, policy: Policy) -> None:
        if (add := self._passes.get((phase, policy))) is None:
            name = "graphpod_forward_passes_total"
            add = self._passes[phase, policy] = self._counters.adder(name, phase=phase.value, policy=policy.value)
        add()

    def _observe(self, made: dict[tuple[Phase, Policy], Observe], name: str, phase: Phase, policy: Policy) -> Observe:
        if (observe := made.get((phase, policy))) is None:
            observe = made[phase, policy] = self._counters.observer(name, phase=phase.value, policy=policy.value)
        return observe

    def _replay_series(self, phase: Phase, policy: Policy) -> tuple[Add, Add, Add]:
        labels = {"phase": phase.value, "backend": self._backend}
        replays = self._counters.adder("graphpod_graph_replays_total", policy=policy.value, **labels)
        real, padding = (
            self._counters.adder("graphpod_graph_tokens_total", kind=kind, **labels) for kind in ("real", "padding")
        )
        return replays, real, padding
