"""The engine's configuration: the bytes in the ConfigMap, and the hash that names them."""

from __future__ import annotations

from dataclasses import dataclass

from graphpod_operator.api import quantity
from graphpod_operator.api.engine import Dtype
from graphpod_operator.api.spec import Spec
from graphpod_operator.intent.model_uri import ModelUri
from graphpod_operator.intent.resolver_input import features, graph_request, wants_gpu
from graphpod_policy import (
    STREAM_HOSTS,
    EngineConfig,
    ModelConfig,
    Plan,
    ServingConfig,
    StreamConfig,
    config_hash,
)


@dataclass(frozen=True, slots=True)
class EngineFile:
    """engine.json: exactly the hashed bytes."""

    data: bytes
    hash: str

    @classmethod
    def of(cls, config: EngineConfig) -> EngineFile:
        """The file of a configuration. Equal configurations give equal bytes."""
        data = config.canonical()
        return cls(data, config_hash(data))


def cpu_threads(spec: Spec) -> int | None:
    """Whole cores of the CPU limit, rounded up, that each rank has; None without a limit."""
    limit = spec.resources.limits.get("cpu")
    return max(1, quantity.whole(limit) // spec.parallelism.ranks_of_pod) if limit is not None else None


def engine_config(name: str, spec: Spec, plan: Plan) -> EngineConfig:
    """What the engine of the service `name` reads."""
    # Which 16-bit type a GPU has is known to the pod alone.
    dtype = spec.engine.dtype or (None if wants_gpu(spec) else Dtype.float32)
    memory = spec.engine.kv_cache_memory
    return EngineConfig.of(
        features(spec),
        graph_request(spec),
        plan,
        model=ModelConfig(
            name=spec.model.name or name,
            path=ModelUri.parse(spec.model.uri, spec.model.sha256).mounted_path,
            stream=StreamConfig(spec.model.uri, STREAM_HOSTS) if spec.model.stream else None,
        ),
        dtype=dtype.value if dtype is not None else None,
        page_size=spec.engine.page_size,
        kv_cache_bytes=quantity.whole(memory) if memory is not None else None,
        threads=cpu_threads(spec),
        serving=ServingConfig(
            drain_seconds=spec.rollout.drain_seconds,
            http_metrics=spec.engine.http_metrics,
            tool_parser=spec.engine.tool_parser,
            reasoning_parser=spec.engine.reasoning_parser,
        ),
        prefix_cache=spec.engine.prefix_cache,
        prefill_budget=spec.engine.prefill_budget,
    )
