"""What the loaded model and its place tell the resolver. Facts can only weaken a plan."""

from dataclasses import replace

from graphpod_policy import EngineConfig, Facts, ModelFacts
from graphpod_policy.start.footprint import capture_room
from graphpod_runtime.attention.choice import Chosen
from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.engine.start.device import Place
from graphpod_runtime.engine.start.device_state import DeviceState
from graphpod_runtime.models.heads.draft_head import DraftHead
from graphpod_runtime.models.model import Model


def known_of(shape: ModelShape, place: Place, chosen: Chosen, draft: Model | DraftHead | None = None) -> Facts:
    """What is known before any buffer is made. `draft` is a draft model or head."""
    model = replace(model_facts(shape), draft=None if draft is None else draft_facts(draft))
    memory, whole = place.memory_bytes(), chosen.reads_whole_tables
    return Facts(model=model, gpu_memory_bytes=memory, reads_whole_tables=whole)


def draft_facts(draft: Model | DraftHead) -> ModelFacts:
    """Those of what drafts."""
    facts = model_facts(draft.shape)
    if isinstance(draft, DraftHead):
        return replace(facts, head=draft.method, draft_vocab=draft.draft_vocab)
    return facts


def facts_of(config: EngineConfig, device_state: DeviceState, known: Facts) -> Facts:
    """All of them, weights loaded and nothing captured yet. `config` as it was given, Auto where it says so."""
    return replace(
        known,
        attention_layers=device_state.attention_layers,
        configured_layers=device_state.model.shape.layers,
        free_bytes=capture_room(config, known, device_state.place.available_bytes()),
    )


def model_facts(shape: ModelShape) -> ModelFacts:
    """The shape of the whole model in the resolver's words. What this engine loads is dense and takes text only."""
    shape = shape.model
    return ModelFacts(
        architecture=shape.architecture,
        layers=shape.layers,
        hidden=shape.hidden,
        intermediate=shape.intermediate,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        latent=shape.latent,
        vocab=shape.vocab,
        tied=shape.tied,
        max_position=shape.max_position,
        windowed=shape.windowed,
        plain_scores=shape.plain_scores,
        path=shape.path,
        uncapturable=shape.uncapturable,
    )
