"""A head of a folder, as published checkpoints have it."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from graphpod_policy import SpeculativeMethod
from graphpod_policy.model.draft_head import DRAFT_VOCAB, head_not_built, layers_of
from graphpod_policy.model.shown import shown
from graphpod_runtime.base.errors import ModelInvalid, ModelUnsupported
from graphpod_runtime.base.progress import OnProgress, ignore_progress
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.models.checkpoint import tensors
from graphpod_runtime.models.config_json import read_config, shape_of
from graphpod_runtime.models.decoder import DecoderBody
from graphpod_runtime.models.heads.draft_head import DraftHead
from graphpod_runtime.models.heads.eagle import EagleHead
from graphpod_runtime.models.heads.eagle3 import Eagle3Head, read_layers
from graphpod_runtime.models.heads.mtp import LAYERS, MtpHead
from graphpod_runtime.models.loader import IGNORED, Stored, fill
from graphpod_runtime.models.model import Model

SHARED = ("embed_tokens.", "model.embed_tokens.", "lm_head.")
"""Beginnings of tensors that heads carry and that are the model's own; EAGLE-3 has an output matrix."""
DISTANCES = ("d2t", "t2d")
BIAS = "fc.bias"


def load_head(
    folder: Path,
    method: SpeculativeMethod,
    model: Model,
    dtype: torch.dtype,
    max_model_len: int,
    device: torch.device = HOST,
    read: OnProgress = ignore_progress,
) -> DraftHead:
    """The head of `method` in `folder` for `model`, for sequences of up to `max_model_len` tokens; of Mtp it is the
    model's folder. A rank's part of a model has that part of the head's layers. ModelInvalid and ModelUnsupported as
    `load_model`; `read` is called as there."""
    if not folder.is_dir():
        raise ModelInvalid(f"{folder}: no such folder; check the head's path and that its volume is mounted")
    config = read_config(folder)
    try:
        missing = head_not_built(method, config)
    except (LookupError, TypeError) as error:
        raise ModelInvalid(f"{folder / 'config.json'}: a field has no usable value ({error})") from error
    if missing is not None:
        raise ModelUnsupported(f"{folder / 'config.json'}: {missing}")
    shape = shape_of(folder, layers_of(method, config))
    if shape.hidden != model.shape.hidden:
        raise ModelUnsupported(
            f"{folder}: the head reads hidden states of {shape.hidden} elements, the model has {model.shape.hidden}"
        )
    if (part := model.shape.part) is not None:
        shape = shape.split(part.rank, part.ranks)
    names = {name for _, name, _ in tensors(folder, frozenset((DISTANCES[0], BIAS)).__contains__)}
    reduced = config.get(DRAFT_VOCAB) or shape.vocab
    if type(reduced) is not int or not 0 < reduced <= shape.vocab:
        raise ModelInvalid(f"{folder}: {DRAFT_VOCAB} {shown(reduced)} is no part of {shape.vocab} tokens")
    if method is SpeculativeMethod.Eagle3 and reduced != shape.vocab and DISTANCES[0] not in names:
        raise ModelInvalid(
            f"{folder}: the head drafts {reduced} of {shape.vocab} tokens, and no tensor {DISTANCES[0]} says which"
        )
    with device:
        head: EagleHead | Eagle3Head | MtpHead
        if method is SpeculativeMethod.Mtp:
            head = MtpHead(shape, model, dtype, max_model_len)
        elif method is SpeculativeMethod.Eagle3:
            if not isinstance(model.body, DecoderBody):
                raise ModelUnsupported(f"{folder}: {model.shape.architecture} has no layers that a head can read")
            if len(read_layers(model.shape.layers)) != 3:
                raise ModelUnsupported(
                    f"{folder}: a model of {model.shape.layers} layers has no three that it can read"
                )
            head = Eagle3Head(shape, model, dtype, max_model_len, reduced)
        else:
            head = EagleHead(shape, model, dtype, max_model_len, biased=BIAS in names)
    head.to(device)  # tables that were computed on the host
    shared = SHARED[:2] if isinstance(head, Eagle3Head) else SHARED

    def has_place(name: str) -> bool:
        if isinstance(head, MtpHead) and not name.startswith(LAYERS):
            return False
        return not name.startswith(shared) and not name.endswith(IGNORED)

    def wanted() -> Iterator[Stored]:
        for file, name, tensor in tensors(folder, has_place):
            if isinstance(head, Eagle3Head) and name in DISTANCES:
                _take_distances(head, file, name, tensor)
            else:
                yield Stored(file, name, name, tensor)

    fill(folder, f"an {method} head", head.targets(), wanted(), device, read)
    return head


def _take_distances(head: Eagle3Head, file: Path, name: str, tensor: Tensor) -> None:
    """The model's token of each row of the output matrix; t2d is the same from the other side."""
    if name != DISTANCES[0]:
        return
    if tuple(tensor.shape) != (head.draft_vocab,):
        raise ModelInvalid(f"{file}: {name} has {tensor.shape[0]} entries, config.json says {head.draft_vocab}")
    tokens = tensor.long() + torch.arange(head.draft_vocab)
    if int(tokens.min()) < 0 or int(tokens.max()) >= head.shape.vocab:
        raise ModelInvalid(f"{file}: {name} names a token outside of the vocabulary of {head.shape.vocab}")
    head.distances.copy_(tensor)
