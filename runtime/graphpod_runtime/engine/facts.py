"""What the loaded model and its place tell the resolver. Facts can only weaken a plan."""

from dataclasses import replace

from graphpod_policy import EngineConfig, Facts, ModelFacts
from graphpod_policy.footprint import capture_room
from graphpod_runtime.attention.choice import Chosen
from graphpod_runtime.engine.device import Place
from graphpod_runtime.engine.parts import Parts
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
        free_bytes=capture_room(config, known, parts.place.available_bytes()),
    )


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
        tied=shape.tied,
        max_position=shape.max_position,
        windowed=shape.windowed,
    )
