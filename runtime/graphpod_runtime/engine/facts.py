"""What the loaded model and its place tell the resolver. Facts can only weaken a plan."""

from torch import Tensor

from graphpod_policy import EngineConfig, Facts, ModelFacts, Phase
from graphpod_runtime.cache.kv import page_bytes
from graphpod_runtime.engine import kv_room
from graphpod_runtime.engine.inputs import dummy_inputs
from graphpod_runtime.engine.parts import Parts
from graphpod_runtime.graphs.memory import MARGIN
from graphpod_runtime.models.base import ModelShape, dtype_of


def facts_of(config: EngineConfig, parts: Parts) -> Facts:
    """All of them, weights loaded and nothing captured yet."""
    shape = parts.model.shape
    return Facts(
        attention_layers=attention_layers(config, parts),
        configured_layers=shape.layers,
        model=model_facts(shape),
        gpu_memory_bytes=parts.place.memory_bytes(),
        free_bytes=capture_room(config, parts),
    )


def attention_layers(config: EngineConfig, parts: Parts) -> int:
    """Layers that call attention, counted in one row through the body."""
    layers: set[int] = set()

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        layers.add(layer)
        return q.flatten(1)

    inputs = dummy_inputs(Phase.Prefill, 1, config.page_size, parts.device)
    parts.passes[Phase.Prefill].eager(inputs, attend, 1)
    return len(layers)


def capture_room(config: EngineConfig, parts: Parts) -> int:
    """Bytes that captures may take: what is free, less the margin and the least KV cache that can serve, which is what
    kvCacheMemory says, else one full context.
    """
    one_context = kv_room.pages_of_one(config) * page_bytes(parts.model.shape, config.page_size, dtype_of(config.dtype))
    free = int(parts.place.available_bytes() * (1 - MARGIN))
    return max(0, free - (config.kv_cache_bytes or one_context))


def model_facts(shape: ModelShape) -> ModelFacts:
    """The shape in the resolver's words. What this engine loads is dense and takes text only."""
    return ModelFacts(
        architecture=shape.architecture,
        layers=shape.layers,
        hidden=shape.hidden,
        intermediate=shape.intermediate,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab=shape.vocab,
    )
