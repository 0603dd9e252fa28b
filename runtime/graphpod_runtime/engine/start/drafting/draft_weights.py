"""The weights of what drafts, if the method of a start has any."""

from pathlib import Path

import torch

from graphpod_policy import EngineConfig, ExitCode, SpeculativeMethod, limits
from graphpod_policy.engine_features import DRAFT_HEADS
from graphpod_policy.start.obstacle import Obstacle
from graphpod_runtime.base.errors import ModelInvalid, ModelUnsupported
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.progress import OnProgress
from graphpod_runtime.base.shapes import dtype_of
from graphpod_runtime.engine.start.device import Place
from graphpod_runtime.engine.start.device_state import LoadModel, loaded
from graphpod_runtime.models.heads.draft_head import DraftHead
from graphpod_runtime.models.heads.loading import load_head
from graphpod_runtime.models.model import Model


def weights_of(
    config: EngineConfig, place: Place, model: Model, read_model: LoadModel, read: OnProgress
) -> Model | DraftHead | None:
    """Those of the draft model or the head for `model`, if the method of `config` has one; `read` hears of every piece.
    StartFailure where they cannot be had."""
    method, folder = config.features.speculative, config.features.speculative_draft
    if method is not SpeculativeMethod.DraftModel and method not in DRAFT_HEADS:
        return None
    if method is SpeculativeMethod.Mtp:
        folder = config.model.path
    if folder is None:
        raise StartFailure(ExitCode.ConfigInvalid, f"spec.engine.speculative: method {method} has no draftModel")
    if method is SpeculativeMethod.DraftModel:
        return loaded(config, place, read_model, read, draft=folder)
    return _head(config, method, Path(folder), place, model, read)


def _head(
    config: EngineConfig, method: SpeculativeMethod, folder: Path, place: Place, model: Model, read: OnProgress
) -> DraftHead:
    field = "method: Mtp" if method is SpeculativeMethod.Mtp else "draftModel"
    where, positions = f"spec.engine.speculative.{field}: ", limits.context(config.feature_set())
    positions = min(positions, model.shape.max_position)
    try:
        head = load_head(folder, method, model, dtype_of(config.element), positions, place.device, read)
        model.body.read_layers = head.reads  # type: ignore[assignment]
        return head
    except ModelUnsupported as error:
        raise StartFailure.by(Obstacle.of(ExitCode.ModelUnsupported, f"{where}{error}")) from error
    except ModelInvalid as error:
        raise StartFailure(ExitCode.ModelInvalid, f"{where}{error}") from error
    except torch.OutOfMemoryError as error:
        what = f"{where}the weights of {folder.name} do not fit: {error}"
        raise StartFailure.by(Obstacle.of(ExitCode.WeightsTooLarge, what)) from error
