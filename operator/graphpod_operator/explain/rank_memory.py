"""What each rank of a service takes of its GPU's memory, or of the container's, by estimate. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

from graphpod_policy import Device, EngineConfig, ModelFacts, Plan
from graphpod_policy.model.stages import stage_layers
from graphpod_policy.start.footprint import page_bytes, weights_bytes
from graphpod_policy.units import size


@dataclass(frozen=True, slots=True)
class RankBytes:
    """What one rank takes. Graphs are those of the stage with most layers."""

    weights: int
    graphs: int
    kv: int | None
    """None: the memory of the GPU is not known."""

    def text(self) -> str:
        """For a person at a terminal."""
        parts = [f"{size(self.weights)} weights", f"{size(self.graphs)} graphs"]
        return ", ".join([*parts, *([] if self.kv is None else [f"{size(self.kv)} KV cache"])])

    def as_dict(self) -> dict[str, int | None]:
        """Plain values."""
        return {"weightsBytes": self.weights, "graphBytes": self.graphs, "kvBytes": self.kv}


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes of each rank, stage by stage. A stage has `tensor` ranks, which take the same."""

    tensor: int
    device: Device
    layers: tuple[int, ...]
    """Of each stage; one without a pipeline."""
    stages: tuple[RankBytes, ...]

    @classmethod
    def of(cls, config: EngineConfig, plan: Plan, model: ModelFacts | None, kv_tokens: int | None) -> RankMemory | None:
        """None for one rank, where the model or the type of its weights is not known, and for stages without layers."""
        spread = config.features
        if spread.ranks == 1 or model is None or config.dtype is None or model.layers < spread.pipeline:
            return None
        graphs = sum(cost.bytes for cost in plan.costs.values())
        pages = None if kv_tokens is None else kv_tokens // config.page_size
        stages = (
            RankBytes(
                weights=weights_bytes(config, model, stage),
                graphs=graphs,
                kv=None if pages is None else pages * page_bytes(config, model, stage),
            )
            for stage in range(spread.pipeline)
        )
        return cls(spread.tensor, spread.device, stage_layers(model.layers, spread.pipeline), tuple(stages))

    @property
    def ranks(self) -> int:
        """Processes, or GPUs."""
        return self.tensor * len(self.stages)

    def text(self) -> str:
        """For a person at a terminal; stages next to each other that take the same are together."""
        one = "GPU" if self.device is Device.Cuda else "rank"
        numbered = enumerate(zip(self.layers, self.stages, strict=True), start=1)
        alike = [(same, [number for number, _ in group]) for same, group in groupby(numbered, key=lambda row: row[1])]
        parts = [f"{self._place(layers, numbers, one)}: {each.text()}" for (layers, each), numbers in alike]
        return "; ".join([*parts, f"in all: {self._all().text()}"])

    def _place(self, layers: int, numbers: list[int], one: str) -> str:
        each = f"each of {ranks} {one}s" if (ranks := self.tensor * len(numbers)) > 1 else f"its {one}"
        if len(self.stages) == 1:
            return each
        if len(numbers) == 1:
            return f"stage {numbers[0]} of {len(self.stages)} ({layers} layers), {each}"
        return f"stages {numbers[0]} to {numbers[-1]} of {len(self.stages)} ({layers} layers each), {each}"

    def _all(self) -> RankBytes:
        kv = [stage.kv for stage in self.stages if stage.kv is not None]
        return RankBytes(
            weights=self.tensor * sum(stage.weights for stage in self.stages),
            graphs=self.tensor * sum(stage.graphs for stage in self.stages),
            kv=self.tensor * sum(kv) if kv else None,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values: what a rank takes at most, and of a pipeline that of each stage by its number."""
        found: dict[str, Any] = {"count": self.ranks, **self.stages[0].as_dict()}
        if len(self.stages) > 1:
            numbered = enumerate(zip(self.layers, self.stages, strict=True), start=1)
            found["stages"] = {str(at): {"layers": layers, **each.as_dict()} for at, (layers, each) in numbered}
        return found
