"""What the loaded model and its place tell the resolver. Facts can only weaken a plan."""

from graphpod_policy import EngineConfig, Facts, ModelFacts
from graphpod_runtime.cache.kv import cache_dtype, page_bytes
from graphpod_runtime.engine import kv_room
from graphpod_runtime.engine.parts import Parts
from graphpod_runtime.graphs.memory import MARGIN
from graphpod_runtime.models.base import ModelShape


def facts_of(config: EngineConfig, parts: Parts) -> Facts:
    """All of them, weights loaded and nothing captured yet."""
    shape = parts.model.shape
    return Facts(
        attention_layers=parts.attention_layers,
        configured_layers=shape.layers,
        model=model_facts(shape),
        gpu_memory_bytes=parts.place.memory_bytes(),
        free_bytes=capture_room(config, parts),
    )


def capture_room(config: EngineConfig, parts: Parts) -> int:
    """Bytes that captures may take: what is free, less the margin and the least KV cache that can serve, which is what
    kvCacheMemory says, else one full context.
    """
    one_context = kv_room.pages_of_one(config) * page_bytes(parts.model.shape, config.page_size, cache_dtype(config))
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
