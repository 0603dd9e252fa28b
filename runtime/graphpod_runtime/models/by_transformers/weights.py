"""Weights of a checkpoint into a model of transformers: our files, its names.

A family's checkpoint may name, merge and split tensors in another way than its modules do. transformers knows how
(`core_model_loading`), and converts tensors that our loader has mapped.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import convert_and_load_state_dict_in_model
from transformers.modeling_utils import LoadStateDictConfig
from transformers.utils import logging

from graphpod_runtime.base.errors import ModelInvalid
from graphpod_runtime.base.progress import OnProgress
from graphpod_runtime.models.checkpoint import tensors

ONE_BY_ONE = "HF_DEACTIVATE_ASYNC_LOAD"
"""transformers' variable: tensors are read by the thread that converts them, which may report progress."""


SPARE, PIECES = 1 << 16, 8
"""Tensors of a checkpoint besides those of its model, and tensors that are one parameter, or one expert's part of it.
transformers takes 80 µs for each, and says at the end which have no place."""


class _Mapped:
    """A tensor of a file: read when transformers asks for it."""

    def __init__(self, tensor: Tensor, read: OnProgress) -> None:
        self._tensor, self._read = tensor, read

    def __getitem__(self, index: Any) -> Tensor:
        self._read()
        return self._tensor[index].clone()

    def get_dtype(self) -> str:
        return str(self._tensor.dtype)

    def get_shape(self) -> list[int]:
        return list(self._tensor.shape)


def fill(model: Any, folder: Path, dtype: torch.dtype, device: torch.device, read: OnProgress) -> None:
    """Moves `model` from the meta device to `device`, with the weights of `folder`. ModelInvalid names what is missing,
    left over or of another shape; `read` is called before each tensor."""
    mapped = {}
    most = _most_tensors(model)
    for file, name, tensor in tensors(folder):
        if len(mapped) == most:
            what = f"more than {most} tensors, and config.json is of a model with fewer"
            raise ModelInvalid(f"{file}: {what}; copy the model again, with its own config.json")
        if tensor.is_floating_point() and tensor.element_size() == 1:
            raise ModelInvalid(f"{file}: {name} is {tensor.dtype}; FP8 weights are built for {_NATIVE} only")
        mapped[name] = _Mapped(tensor, read)
    config = LoadStateDictConfig(
        device_map={"": device},
        dtype=dtype,
        dtype_plan=model._get_dtype_plan(dtype),
        weight_mapping=get_model_conversion_mapping(model),
    )
    with _quiet(), _one_by_one():
        try:
            found, _ = convert_and_load_state_dict_in_model(model, mapped, config)
            type(model)._finalize_model_loading(model, config, found)
        except RuntimeError as error:
            raise ModelInvalid(f"{folder}: the weights are not of this config.json: {error}") from error
    if problem := next(
        (
            f"{len(names)} tensors {what}, first {min(map(str, names))}"
            for names, what in (
                (found.missing_keys, "are missing"),
                (found.unexpected_keys, "have no place in the model"),
            )
            if names
        ),
        None,
    ):
        raise ModelInvalid(f"{folder}: {problem}; copy the model again, with its own config.json")


def _most_tensors(model: Any) -> int:
    """Of a checkpoint of `model`: a parameter of three dimensions may be put together from those of experts."""
    shapes = [one.shape for one in model.state_dict().values()]
    return SPARE + PIECES * sum(shape[0] if len(shape) > 2 else 1 for shape in shapes)


_NATIVE = "models on the native path"


def draw(model: Any, dtype: torch.dtype, device: torch.device, read: OnProgress) -> None:
    """Moves `model` from the meta device to `device`, with random weights as transformers begins training; the same
    for the same model on the same device."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), _quiet():
        torch.manual_seed(0)
        model._move_missing_keys_from_meta_to_device(set(model.state_dict()), {"": device}, None, None)
        read()
        model._initialize_missing_keys(False)
        model.tie_weights()
    read()


@contextmanager
def _one_by_one() -> Iterator[None]:
    before = os.environ.get(ONE_BY_ONE)
    os.environ[ONE_BY_ONE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[ONE_BY_ONE]
        else:
            os.environ[ONE_BY_ONE] = before


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' bars and reports: what is wrong is raised."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
