"""Weights from a folder of safetensors files into a model, one tensor at a time."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from graphpod_policy.model.architectures import ARCHITECTURES
from graphpod_policy.model.weight_form import INSTEAD, form_by_tensor
from graphpod_runtime.base.errors import ModelInvalid
from graphpod_runtime.base.progress import OnProgress, ignore_progress
from graphpod_runtime.base.shapes import HOST, ModelShape
from graphpod_runtime.memory.staging import staged
from graphpod_runtime.models.checkpoint import Keep, tensors
from graphpod_runtime.models.config_json import read_shape
from graphpod_runtime.models.decoder_targets import decoder_targets
from graphpod_runtime.models.kv_scales import KvScales
from graphpod_runtime.models.mlp.stacks import apart
from graphpod_runtime.models.model import Model
from graphpod_runtime.models.parts import elsewhere, of_other_experts
from graphpod_runtime.models.registry import build, by_transformers, computed_by_transformers
from graphpod_runtime.models.tensor_destination import Destination, Divided, Stacked, Target, TensorInvalid
from graphpod_runtime.models.weights.fp8_destinations import Fp8Rows, OnlineRows
from graphpod_runtime.streaming.folder import is_streamed
from graphpod_runtime.streaming.tensors import outlines, streamed_tensors

IGNORED = ("rotary_emb.inv_freq",)
"""Suffixes of tensors that old checkpoints carry and that are computed here."""


def load_model(
    folder: Path,
    dtype: torch.dtype,
    max_model_len: int,
    device: torch.device = HOST,
    read: OnProgress = ignore_progress,
    quantize: bool = False,
    rank: int = 0,
    ranks: int = 1,
    stage: int = 0,
    stages: int = 1,
    expert_groups: int = 1,
) -> Model:
    """The model in `folder`, or the part that `rank` of `ranks` has of `stage` of `stages`, weights as `dtype` on
    `device`. `expert_groups`: as `ModelShape.split` has them.
    ModelInvalid names file and tensor of what is wrong. `read` is called after each piece of a tensor, however slow the
    storage is. `quantize`: the matrices of layers become FP8 where the checkpoint's are not.
    """
    if not folder.is_dir():
        raise ModelInvalid(f"{folder}: no such folder; check the model's path and that its volume is mounted")
    if computed_by_transformers(folder):
        return by_transformers(folder, dtype, max_model_len, device, read, quantize)
    shape = read_shape(folder, quantize)
    if stages > 1:
        shape = shape.staged(stage, stages)
    if ranks > 1:
        shape = shape.split(rank, ranks, expert_groups)
    with device:
        model = build(shape, dtype, min(max_model_len, shape.max_position))
    model.module().to(device)  # tables that were computed on the host
    scales = KvScales(shape.layers, 0 if shape.stage is None else shape.stage.first)
    targets = decoder_targets(model)
    content: Content = partial(tensors, folder)
    if is_streamed(folder):
        wanted = needed(folder, shape, targets, scales)
        content = lambda _: streamed_tensors(folder, wanted, device, read)  # noqa: E731
    fill(folder, shape.architecture, targets, stored(content, shape, scales), device, read)
    model.kv_scales, model.unscaled_layers = scales.by_layer(), scales.missing()
    return model


Content = Callable[[Keep], Iterable[tuple[Path, str, Tensor]]]
"""The tensors of a checkpoint that are wanted: file, name and tensor of each."""


def stored(content: Content, shape: ModelShape, scales: KvScales) -> Iterator["Stored"]:
    """The tensors of `content` that our decoder of `shape` has a place for, or should have; `scales` takes its own.
    Of outlines, which have no values, it takes none."""
    architecture = ARCHITECTURES[shape.architecture]

    def has_place(stored_name: str) -> bool:
        name = architecture.tensor(stored_name)
        if name is None or name.endswith(IGNORED) or (shape.tied and name.startswith("lm_head.")):
            return False
        return not elsewhere(name, shape)

    for file, stored_name, tensor in content(has_place):
        name = architecture.tensor(stored_name)
        assert name is not None
        if not (scales.has(name) if tensor.is_meta else scales.take(file, name, tensor)):
            for own_name, own in apart(name, tensor):
                if not of_other_experts(own_name, shape):
                    yield Stored(file, stored_name, own_name, own)


def needed(
    folder: Path, shape: ModelShape, targets: Mapping[str, Destination], scales: KvScales
) -> dict[str, list[tuple[int, int]]]:
    """Bytes of each tensor of a streamed checkpoint that `targets` and `scales` take, by its name there. ModelInvalid
    as `matched`, before a byte of them is read."""
    architecture = ARCHITECTURES[shape.architecture]
    found: dict[str, list[tuple[int, int]]] = {}
    for _, stored_name, tensor in outlines(folder, lambda name: scales.has(architecture.tensor(name) or "")):
        found[stored_name] = [(0, tensor.nbytes)]
    taken = matched(folder, shape.architecture, targets, stored(partial(outlines, folder), shape, scales))
    for one, target in taken:
        for part in pieces_read(target, one.tensor):
            start = part.storage_offset() * part.element_size()
            found.setdefault(one.stored_name, []).append((start, start + part.nbytes))
    return found


def pieces_read(target: Destination, tensor: Tensor) -> Iterator[Tensor]:
    """What `target` reads of `tensor`, each piece without a gap: of one whose rows are divided, a rank's rows."""
    if isinstance(target, Stacked):
        for part, own in target.apart(tensor):
            yield from pieces_read(part, own)
    elif isinstance(target, Target | Fp8Rows | OnlineRows | Divided) and target.cut.dim == 0:
        yield target.cut.taken(tensor)
    else:
        yield tensor


class Stored(NamedTuple):
    """A tensor of a checkpoint."""

    file: Path
    stored_name: str
    name: str
    """That of its target."""
    tensor: Tensor


def fill(
    folder: Path,
    what: str,
    targets: Mapping[str, Destination],
    stored: Iterable[Stored],
    device: torch.device,
    read: OnProgress,
) -> None:
    """All of `targets`, those of `what` on `device`, take what is `stored`. ModelInvalid names one that is wrong or
    missing."""
    with staged(device):
        for (file, stored_name, _, tensor), target in matched(folder, what, targets, stored):
            try:
                target.fill(tensor, read)
            except TensorInvalid as error:
                raise ModelInvalid(f"{file}: {stored_name} {error}") from error


def matched(
    folder: Path, what: str, targets: Mapping[str, Destination], stored: Iterable[Stored]
) -> Iterator[tuple[Stored, Destination]]:
    """Each tensor that is `stored` with its target. ModelInvalid names one that has none, has another shape or, at the
    end, is missing."""
    missing = set(targets)
    for one in stored:
        if one.name not in targets:
            if (form := form_by_tensor(one.stored_name)) is not None:
                words = (
                    f"{one.file}: tensor {one.stored_name} is of weights in another form than config.json says ({form})"
                )
                raise ModelInvalid(f"{words}; {INSTEAD}")
            raise ModelInvalid(
                f"{one.file}: tensor {one.stored_name} has no place in {what}; use the config.json of this model"
            )
        target = targets[one.name]
        if tuple(one.tensor.shape) not in map(tuple, target.shapes):
            raise ModelInvalid(
                f"{one.file}: {one.stored_name} has shape {list(one.tensor.shape)}, config.json says "
                f"{list(target.shapes[0])}; the two are of different models"
            )
        yield one, target
        missing.discard(one.name)
    if missing:
        raise ModelInvalid(
            f"{folder}: {len(missing)} of {len(targets)} tensors are missing, first {min(missing)}; "
            "copy the model again"
        )
