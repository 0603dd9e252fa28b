"""A head of a folder, as published checkpoints have it."""

from collections.abc import Iterator
from pathlib import Path

import torch

from graphpod_policy import SpeculativeMethod
from graphpod_policy.model.draft_head import head_not_built, layers_of
from graphpod_runtime.base.errors import ModelInvalid, ModelUnsupported
from graphpod_runtime.base.progress import OnProgress, ignore_progress
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.models.checkpoint import tensors
from graphpod_runtime.models.config_json import read_config, shape_of
from graphpod_runtime.models.heads.draft_head import DraftHead
from graphpod_runtime.models.heads.eagle import EagleHead
from graphpod_runtime.models.loader import IGNORED, Stored, fill
from graphpod_runtime.models.model import Model

SHARED = ("embed_tokens.", "lm_head.", "model.embed_tokens.")
"""Beginnings of tensors that heads of EAGLE carry and that are the model's own."""


def load_head(
    folder: Path,
    method: SpeculativeMethod,
    model: Model,
    dtype: torch.dtype,
    max_model_len: int,
    device: torch.device = HOST,
    read: OnProgress = ignore_progress,
) -> DraftHead:
    """The head of `method` in `folder` for `model`, for sequences of up to `max_model_len` tokens. ModelInvalid and
    ModelUnsupported as `load_model`; `read` is called as there."""
    if not folder.is_dir():
        raise ModelInvalid(f"{folder}: no such folder; check the head's path and that its volume is mounted")
    config = read_config(folder)
    if (missing := head_not_built(method, config)) is not None:
        raise ModelUnsupported(f"{folder / 'config.json'}: {missing}")
    shape = shape_of(folder, layers_of(config))
    if shape.hidden != model.shape.hidden:
        raise ModelUnsupported(
            f"{folder}: the head reads hidden states of {shape.hidden} elements, the model has {model.shape.hidden}"
        )
    names = {name for _, name, _ in tensors(folder)}
    with device:
        head = EagleHead(shape, model, dtype, max_model_len, biased="fc.bias" in names)
    head.to(device)  # tables that were computed on the host

    def wanted() -> Iterator[Stored]:
        for file, name, tensor in tensors(folder):
            if not name.startswith(SHARED) and not name.endswith(IGNORED):
                yield Stored(file, name, name, tensor)

    fill(folder, f"an {method} head", head.targets(), wanted(), read)
    return head
