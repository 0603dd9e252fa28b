"""What is counted of speculative decoding, once a pass has landed."""

from collections.abc import Mapping

from graphpod_policy import FeatureConfig, SpeculativeMethod
from graphpod_runtime.engine.schedule.drafting import DraftsYielded, PlainReason
from graphpod_runtime.wire.counters import Counters


class SpeculationMetrics:
    """Of one engine's runner."""

    def __init__(self, counters: Counters, features: FeatureConfig) -> None:
        assert features.speculative is not None, "made for engines with a method"
        method = features.speculative.value
        if (limit := features.speculative_max_batch) is not None:
            counters.set("graphpod_speculation_max_batch", limit, method=method)
        self._passes = counters.adder("graphpod_speculation_passes_total", method=method)
        self._proposed = counters.adder("graphpod_speculation_proposed_tokens_total", method=method)
        self._accepted = counters.adder("graphpod_speculation_accepted_tokens_total", method=method)
        self._lengths = counters.observer("graphpod_speculation_accepted_length", method=method)

    def landed(self, yielded: DraftsYielded) -> None:
        """A decode pass has landed. Without drafts in it nothing is counted: others were right by chance."""
        runs = [(drafts, len(more)) for drafts, more in zip(yielded.drafted, yielded.more, strict=True) if drafts]
        if not runs:
            return
        self._passes()
        self._proposed(sum(drafts for drafts, _ in runs))
        self._accepted(sum(accepted for _, accepted in runs))
        for _, accepted in runs:
            self._lengths(accepted)


class PlainRows:
    """Decoded rows without drafts, by reason, of one engine's scheduler."""

    def __init__(self, counters: Counters, method: SpeculativeMethod) -> None:
        name = "graphpod_speculation_plain_rows_total"
        self._adders = {why: counters.adder(name, method=method.value, reason=why.value) for why in PlainReason}
        self._counted = dict.fromkeys(PlainReason, 0)

    def update(self, plain: Mapping[PlainReason, int]) -> None:
        """`plain` are the rows so far."""
        for reason, add in self._adders.items():
            if more := plain.get(reason, 0) - self._counted[reason]:
                add(more)
                self._counted[reason] += more
