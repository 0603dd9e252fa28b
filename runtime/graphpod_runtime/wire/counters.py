"""Cumulative counters, gauges and histograms of the engine process, checked against the metric table."""

from collections.abc import Collection
from dataclasses import dataclass, field

from graphpod_policy import BUILT_POLICIES, POSSIBLE_FALLBACKS, Backend, ExitCode, Policy
from graphpod_policy.metrics import BY_NAME, Kind, Metric, Process
from graphpod_runtime.wire.series import Add, Histogram, Key, Observe, Total


@dataclass(frozen=True, slots=True)
class Sample:
    """One series now. For a histogram `buckets` are counts by bound (not cumulative), the last one above all
    bounds, and `value` is the sum of observations.
    """

    name: str
    labels: dict[str, str]
    value: float
    buckets: tuple[int, ...] = ()


@dataclass(slots=True)
class Counters:
    """All series of this process. KeyError for a name, ValueError for labels or a kind the table does not have."""

    _totals: dict[Key, Total] = field(default_factory=dict)
    _histograms: dict[Key, Histogram] = field(default_factory=dict)
    _changed: set[Key] = field(default_factory=set)
    """Series that `changes` has not reported. Always the same set: they hold it."""

    def add(self, name: str, amount: float = 1, /, **labels: str) -> None:
        """Raises a counter."""
        total = self._total(self._key(name, Kind.Counter, labels))
        if amount:
            total.add(amount)

    def set(self, name: str, value: float, /, **labels: str) -> None:
        """Sets a gauge."""
        self._total(self._key(name, Kind.Gauge, labels)).set(value)

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Adds one observation to a histogram."""
        self.observer(name, **labels)(value)

    def observer(self, name: str, /, **labels: str) -> Observe:
        """Adds so many equal observations to one histogram, whose name and labels are checked only here."""
        key = self._key(name, Kind.Histogram, labels)
        if (series := self._histograms.get(key)) is None:
            series = self._histograms[key] = Histogram(key, BY_NAME[name].buckets, self._changed)
        return series.observe

    def adder(self, name: str, /, **labels: str) -> Add:
        """Raises one counter, which begins at 0; its name and labels are checked only here."""
        return self._total(self._key(name, Kind.Counter, labels)).add

    def value(self, name: str, /, **labels: str) -> float:
        """The sum over all series of `name` whose labels include `labels`."""
        metric = BY_NAME[name]
        wanted = {metric.labels.index(label): value for label, value in labels.items()}
        return sum(
            total.value
            for (other, values), total in self._totals.items()
            if other == name and all(values[index] == value for index, value in wanted.items())
        )

    def start_at_zero(self, backend: Backend) -> None:
        """Creates every graph series with known labels: a rate needs a sample before the first event."""
        for phase, policies in BUILT_POLICIES.items():
            for policy in policies:
                self.add("graphpod_forward_passes_total", 0, phase=phase, policy=policy)
                self.observer("graphpod_forward_duration_seconds", phase=phase, policy=policy)
                self.observer("graphpod_forward_launch_duration_seconds", phase=phase, policy=policy)
                if policy is Policy.Disabled:
                    continue
                labels = {"phase": phase.value, "policy": policy.value, "backend": backend.value}
                self.observer("graphpod_graph_capture_duration_seconds", **labels)
                self.add("graphpod_graph_replays_total", 0, **labels)
                for result in ("ok", "error"):
                    self.add("graphpod_graph_captures_total", 0, result=result, **labels)
                for result in ("passed", "failed"):
                    self.add("graphpod_graph_selfchecks_total", 0, result=result, **labels)
            self.add("graphpod_eager_passes_total", 0, phase=phase)
            self.add("graphpod_graph_recaptures_total", 0, phase=phase, backend=backend)
            for kind in ("real", "padding"):
                self.add("graphpod_graph_tokens_total", 0, phase=phase, kind=kind, backend=backend)
            for reason in POSSIBLE_FALLBACKS:
                self.add("graphpod_graph_fallbacks_total", 0, phase=phase, reason=reason, backend=backend)
            for code in (ExitCode.CaptureFailed, ExitCode.CaptureOutOfMemory, ExitCode.CompileFailed):
                self.add("graphpod_graph_capture_failures_total", 0, phase=phase, backend=backend, reason=code.name)

    def snapshot(self) -> list[Sample]:
        """Every series, cumulative since start. Another thread may count meanwhile."""
        return [self._sample(key) for key in (*list(self._totals), *list(self._histograms))]

    def changes(self) -> list[Sample]:
        """The series that have changed since the last call, cumulative since start; the first time all. Another thread
        may count meanwhile: what it counts is in this call or the next.
        """
        return self._report(list(self._changed))

    def changes_of(self, names: Collection[str]) -> list[Sample]:
        """The same, of the metrics `names` alone: the other changes wait for the next call of `changes`."""
        return self._report([key for key in list(self._changed) if key[0] in names])

    def _report(self, changed: list[Key]) -> list[Sample]:
        self._changed.difference_update(changed)
        return [self._sample(key) for key in changed]

    def _total(self, key: Key) -> Total:
        if (total := self._totals.get(key)) is None:
            total = self._totals[key] = Total(key, self._changed)
        return total

    def _sample(self, key: Key) -> Sample:
        name, labels = key[0], _labels(*key)
        if (series := self._histograms.get(key)) is not None:
            return Sample(name, labels, series.total, tuple(series.counts))
        return Sample(name, labels, self._totals[key].value)

    @staticmethod
    def _key(name: str, kind: Kind, labels: dict[str, str]) -> Key:
        metric: Metric = BY_NAME[name]
        if metric.kind is not kind or metric.process is not Process.Engine:
            raise ValueError(f"{name} is a {metric.kind} of the {metric.process}, not a {kind} of the engine")
        if set(labels) != set(metric.labels):
            raise ValueError(f"{name} has labels {metric.labels}, not {tuple(labels)}")
        return name, tuple(str(labels[label]) for label in metric.labels)


def _labels(name: str, values: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(BY_NAME[name].labels, values, strict=True))
