"""What the loaded model and its place tell the resolver. Facts can only weaken a plan."""

from dataclasses import replace

from graphpod_policy import EngineConfig, Facts, ModelFacts, limits
from graphpod_runtime.attention.choice import Chosen
from graphpod_runtime.cache.kv import cache_dtype, page_bytes
from graphpod_runtime.engine import kv_room
from graphpod_runtime.engine.device import Place
from graphpod_runtime.engine.parts import Parts
from graphpod_runtime.graphs.memory import MARGIN
from graphpod_runtime.models.base import ModelShape


def known_of(shape: ModelShape, place: Place, chosen: Chosen) -> Facts:
    """What is known before any buffer is made."""
    return Facts(
        model=model_facts(shape), gpu_memory_bytes=place.memory_bytes(), reads_whole_tables=chosen.reads_whole_tables
    )


def facts_of(config: EngineConfig, parts: Parts, known: Facts) -> Facts:
    """All of them, weights loaded and nothing captured yet. `config` as it was given, Auto where it says so."""
    return replace(
        known,
        attention_layers=parts.attention_layers,
        configured_layers=parts.model.shape.layers,
        free_bytes=capture_room(config, parts, known),
    )


def capture_room(config: EngineConfig, parts: Parts, known: Facts) -> int:
    """Bytes that captures may take: what is free, less the margin and the least KV cache that can serve, which is what
    kvCacheMemory says, else one context, where it is derived the shortest that may be.
    """
    least = kv_room.pages_of(limits.least_context(config.feature_set(), known), config.page_size)
    one_context = least * page_bytes(parts.model.shape, config.page_size, cache_dtype(config))
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
        max_position=shape.max_position,
    )
