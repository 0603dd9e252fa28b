"""What sleep would free on the device of a pod, by estimate. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphpod_policy import EngineConfig, ModelFacts
from graphpod_policy.start.footprint import page_bytes, weights_bytes
from graphpod_policy.units import duration, size


@dataclass(frozen=True, slots=True)
class SleepBytes:
    """Of a service that can sleep. What of a draft model is on the device stays there."""

    weights: int | None
    """None: the model is not known."""
    kv: int | None
    """None: the memory of the device is not known."""
    after_seconds: int | None
    """Without requests; None: only the annotation makes it sleep."""

    @classmethod
    def of(cls, config: EngineConfig, model: ModelFacts | None, kv_tokens: int | None) -> SleepBytes | None:
        """None for a service that cannot sleep. `config` has the type of the weights where that is known."""
        if not config.features.sleep:
            return None
        after = config.features.sleep_after_seconds
        if model is None or config.dtype is None:
            return cls(None, None, after)
        alone = replace(model, draft=None)
        pages = None if kv_tokens is None else kv_tokens // config.page_size
        kv = None if pages is None else pages * page_bytes(config, alone)
        return cls(weights_bytes(config, alone), kv, after)

    def text(self) -> str:
        """For a person at a terminal."""
        weights = "the weights" if self.weights is None else f"{size(self.weights)} of weights"
        kv = "the KV cache" if self.kv is None else f"{size(self.kv)} of KV cache"
        when = "while the annotation graphpod.dev/sleep is true"
        if self.after_seconds is not None:
            when += f", or after {duration(self.after_seconds)} without a request"
        return f"frees {weights} and {kv} on the device of each pod, {when}"

    def as_dict(self) -> dict[str, int | None]:
        """Plain values."""
        return {"weightsBytes": self.weights, "kvBytes": self.kv, "afterSeconds": self.after_seconds}
