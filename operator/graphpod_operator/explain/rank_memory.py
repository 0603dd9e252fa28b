"""What each rank of a service takes of its GPU's memory, or of the container's, by estimate. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphpod_policy import Device, EngineConfig, ModelFacts, Plan
from graphpod_policy.start.footprint import page_bytes, weights_bytes
from graphpod_policy.units import size


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes of one of `ranks` ranks; all take the same."""

    ranks: int
    device: Device
    weights: int
    graphs: int
    kv: int | None
    """None: the memory of the GPU is not known."""

    @classmethod
    def of(cls, config: EngineConfig, plan: Plan, model: ModelFacts | None, kv_tokens: int | None) -> RankMemory | None:
        """None for one rank, and where the model or the type of its weights is not known."""
        if config.features.tensor == 1 or model is None or config.dtype is None:
            return None
        return cls(
            ranks=config.features.tensor,
            device=config.features.device,
            weights=weights_bytes(config, model),
            graphs=sum(cost.bytes for cost in plan.costs.values()),
            kv=None if kv_tokens is None else kv_tokens // config.page_size * page_bytes(config, model),
        )

    def text(self) -> str:
        """For a person at a terminal."""
        place = "GPUs" if self.device is Device.Cuda else "ranks"
        return f"each of {self.ranks} {place}: {self._times(1)}; in all: {self._times(self.ranks)}"

    def _times(self, ranks: int) -> str:
        parts = [f"{size(ranks * self.weights)} weights", f"{size(ranks * self.graphs)} graphs"]
        if self.kv is not None:
            parts.append(f"{size(ranks * self.kv)} KV cache")
        return ", ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        each = {"weightsBytes": self.weights, "graphBytes": self.graphs, "kvBytes": self.kv}
        return {"count": self.ranks, **each}
