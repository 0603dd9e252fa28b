"""What the loop measures: the state of queue and KV cache, and each request from its arrival to its last token."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from graphpod_policy import Phase, Policy
from graphpod_runtime.engine.host_cache_metrics import HostCacheMetrics
from graphpod_runtime.engine.schedule.scheduler import Progress, Scheduler
from graphpod_runtime.engine.schedule.sequence import Marks, Sequence
from graphpod_runtime.engine.speculation_metrics import PlainRows
from graphpod_runtime.wire.counters import Counters, Sample
from graphpod_runtime.wire.messages import FinishReason, Phases
from graphpod_runtime.wire.series import Observe

LOAD = ("graphpod_requests_running", "graphpod_requests_waiting", "graphpod_kv_cache_usage_ratio")
"""What an endpoint picker reads."""


@dataclass(slots=True)
class _Times:
    """Of one open request, by time.monotonic(). 0: it has not happened."""

    arrived: float
    admitted: float = 0.0
    first: float = 0.0


class ServingMetrics:
    """Writes the series of serving. Names and labels are checked once, when this is made."""

    def __init__(
        self, counters: Counters, scheduler: Scheduler, capacity_tokens: int, model: str, before: Callable[[], int]
    ) -> None:
        """`capacity_tokens`: what the KV cache can hold; `model`: its name; `before`: how many requests wait that the
        scheduler does not have yet."""
        self._counters, self._scheduler, self._before = counters, scheduler, before
        self._open, self._queue = dict[str, _Times](), dict[str, Sequence]()
        """Requests that have not ended, and those of them that were never admitted."""
        self._asked_tokens = 0
        """Of the scheduler when the queue was looked at last: it grows with each first admission."""
        counters.set("graphpod_kv_cache_capacity_tokens", capacity_tokens)
        counters.set("graphpod_prefill_budget_tokens", scheduler.limits.budget_while_decoding)
        self._more = 0
        """Tokens of the pass that lands, beyond one for each of its requests."""

        def observer(name: str) -> Observe:
            return counters.observer(f"graphpod_{name}", model_name=model)

        self._queued = observer("request_queue_time_seconds")
        self._prefilled = observer("request_prefill_time_seconds")
        self._decoded = observer("request_decode_time_seconds")
        self._ran = observer("request_inference_time_seconds")
        self._of_passes = observer("iteration_tokens")
        self._computed = observer("request_prefill_computed_tokens")
        self._preempted = observer("request_preemptions")
        self._most = observer("request_max_tokens")
        names = (
            "graphpod_preemptions_total",
            "graphpod_nonfinite_logits_total",
            "graphpod_prefix_cache_queried_tokens_total",
            "graphpod_prefix_cache_hit_tokens_total",
            "graphpod_prefix_cache_evicted_tokens_total",
        )
        self._adders = [counters.adder(name) for name in names]
        self._totals = [0] * len(names)
        self._plain: PlainRows | None = None
        self._host: HostCacheMetrics | None = None
        if (tier := scheduler.kv.host) is not None:
            self._host = HostCacheMetrics(counters, scheduler.kv, tier, scheduler.limits.page_size)
        if (speculation := scheduler.limits.speculation) is not None:
            self._plain = PlainRows(counters, speculation.method)

    def arrived(self, sequence: Sequence, at: float) -> None:
        """The scheduler has taken a request that came `at` a time of time.monotonic()."""
        self._open[sequence.id], self._queue[sequence.id] = _Times(at), sequence
        if sequence.marks is not None:
            sequence.marks.arrived = at

    def left(self, id: str) -> None:
        """A request has ended without an answer."""
        self._open.pop(id, None)
        self._queue.pop(id, None)

    def planned(self) -> None:
        """A pass is planned, and not launched yet: requests may have been admitted to it."""
        if self._scheduler.kv.asked_tokens == self._asked_tokens:
            return
        self._asked_tokens, now = self._scheduler.kv.asked_tokens, time.monotonic()
        for id in [id for id, sequence in self._queue.items() if sequence.cached is not None]:
            sequence, times = self._queue.pop(id), self._open[id]
            times.admitted = now
            self._queued(now - times.arrived)
            if sequence.marks is not None:
                sequence.marks.admitted, sequence.marks.prefill = now, self._passes(Phase.Prefill)

    def progressed(self, progress: Progress) -> None:
        """A pass has landed, and a request has one more token or has ended."""
        sequence = progress.sequence
        id, times = sequence.id, self._open.get(sequence.id)
        if times is None or progress.finish is FinishReason.Error:
            self.left(id)
            self._more -= 1
            return
        if not times.first or progress.finish is not None:
            now = time.monotonic()
            if not times.first:
                times.first = now
                self._more += sequence.prompt_len
                self._prefilled(now - times.admitted)
                self._computed(sequence.prompt_len - (sequence.cached or 0))
                if sequence.marks is not None:
                    sequence.marks.first, sequence.marks.decode = now, self._passes(Phase.Decode)
            if progress.finish is not None:
                self._decoded(now - times.first)
                self._ran(now - times.admitted)
                self._preempted(sequence.preemptions)
                self._most(sequence.max_tokens)
                self.left(id)

    def phases(self, marks: Marks) -> Phases:
        """What a traced request went through until its first token, which has come."""
        return Phases(marks.arrived, marks.admitted, marks.first, *self._since(Phase.Prefill, marks.prefill))

    def decoded(self, marks: Marks) -> tuple[int, int]:
        """Decode passes of a traced request since its first token, on a graph and eagerly: it was in each of them."""
        return self._since(Phase.Decode, marks.decode)

    def _since(self, phase: Phase, before: tuple[int, int]) -> tuple[int, int]:
        replayed, eager = self._passes(phase)
        return replayed - before[0], eager - before[1]

    def _passes(self, phase: Phase) -> tuple[int, int]:
        """Passes of a phase that have landed, on a graph and eagerly. Adds up all series: for traced requests alone."""
        landed = self._counters.value("graphpod_forward_passes_total", phase=phase)
        eager = self._counters.value("graphpod_forward_passes_total", phase=phase, policy=Policy.Disabled)
        return int(landed - eager), int(eager)

    def landed(self, requests: int) -> None:
        """All that the pass brought to so many requests has been given to `progressed`."""
        if tokens := requests + self._more:
            self._of_passes(tokens)
        self._more = 0

    def load_changes(self) -> list[Sample]:
        """The gauges of LOAD that were not reported as they are now."""
        self._load()
        return self._counters.changes_of(LOAD)

    def _load(self) -> None:
        values = (self._scheduler.running, self._scheduler.waiting + self._before(), self._scheduler.usage)
        for name, value in zip(LOAD, values, strict=True):
            self._counters.set(name, value)

    def update(self) -> None:
        """Writes the gauges, and what the scheduler has counted, as they are now."""
        self._load()
        scheduler, kv = self._scheduler, self._scheduler.kv
        self._counters.set("graphpod_prefix_cache_tokens", kv.tree.size * scheduler.limits.page_size)
        evicted = kv.tree.evicted * scheduler.limits.page_size
        totals = [scheduler.preemptions, scheduler.nonfinite, kv.asked_tokens, kv.hit_tokens, evicted]
        for add, total, before in zip(self._adders, totals, self._totals, strict=True):
            if total != before:
                add(total - before)
        self._totals = totals
        if self._host is not None:
            self._host.update()
        if self._plain is not None and scheduler.drafting is not None:
            self._plain.update(scheduler.drafting.plain)
