"""What config.json says of a model before its weights are there, and whether an engine can start with it. No torch: the
front refuses a start by it before any rank exists.
"""

from dataclasses import replace
from pathlib import Path

from graphpod_policy import EngineConfig, FeatureConfig, ModelFacts, ModelUnreadable, SpeculativeMethod, can_start
from graphpod_policy.engine_features import DRAFT_HEADS
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.files.json_file import JsonFileInvalid, json_object


def model_of(folder: Path, features: FeatureConfig | None = None) -> ModelFacts | None:
    """The model in `folder` as its config.json describes it, with what drafts for it by `features`; None where that
    cannot be read, which loading reports."""
    model = _facts(folder)
    if model is None or features is None:
        return model
    if features.speculative is SpeculativeMethod.Mtp:
        return replace(model, draft=_draft(features, folder))
    if features.speculative_draft is None:
        return model
    return replace(model, draft=_draft(features, Path(features.speculative_draft)))


def require_start(config: EngineConfig, files: bool = True) -> None:
    """StartFailure where settings and model already rule a start out, in explain's words. Memory and GPUs are looked at
    by the engine's own start. `files` False: those in the model's folder are not, or not yet, this model's.
    """
    plan, model = config.resolved(), model_of(Path(config.model.path), config.features) if files else None
    if obstacles := can_start(replace(config, prefill_chunk=plan.prefill_chunk), plan, model):
        raise StartFailure.by(*obstacles)


def _draft(features: FeatureConfig, folder: Path) -> ModelFacts | None:
    return _facts(folder, features.speculative if features.speculative in DRAFT_HEADS else None)


def _facts(folder: Path, head: SpeculativeMethod | None = None) -> ModelFacts | None:
    try:
        if (config := json_object(folder / "config.json")) is None:
            return None
        return ModelFacts.of(config).served if head is None else ModelFacts.of_head(head, config)
    except (JsonFileInvalid, ModelUnreadable):
        return None
