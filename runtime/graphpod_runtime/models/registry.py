"""Building a model: by our own decoder where it knows the architecture, else by transformers."""

from importlib.util import find_spec
from pathlib import Path

import torch

from graphpod_policy.model.families import transformers_version
from graphpod_runtime.base.errors import ModelUnsupported
from graphpod_runtime.base.progress import OnProgress
from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.models.config_json import read_declared
from graphpod_runtime.models.decoder import Decoder
from graphpod_runtime.models.model import Model


def build(shape: ModelShape, dtype: torch.dtype, max_model_len: int) -> Decoder:
    """Our own decoder with unset weights."""
    return Decoder(shape, dtype, max_model_len)


def computed_by_transformers(folder: Path) -> bool:
    """Whether the model in `folder` is one that transformers has and our decoder does not."""
    return read_declared(folder).family is not None


def by_transformers(
    folder: Path,
    dtype: torch.dtype,
    max_model_len: int,
    device: torch.device,
    read: OnProgress,
    quantize: bool,
    *,
    random: bool = False,
) -> Model:
    """Such a model. ModelUnsupported says what of it cannot be had."""
    where = folder / "config.json"
    if (missing := read_declared(folder).not_built()) is not None:
        raise ModelUnsupported(f"{where}: {missing}")
    if quantize:
        raise ModelUnsupported(f"{where}: FP8 weights are not built for models that transformers computes")
    if find_spec("transformers") is None:
        raise ModelUnsupported(
            f"{where}: this model runs by the library transformers, which is not installed; "
            f"install transformers=={transformers_version()}"
        )
    # Imported for these models only: it takes a second.
    from graphpod_runtime.models.by_transformers.model import transformers_model

    return transformers_model(folder, dtype, max_model_len, device, read, random=random)


def parameters_by_transformers(folder: Path, model: Model, dtype: torch.dtype, read: OnProgress) -> None:
    """The weights in `folder` into the places that `model`, which `by_transformers` made of them, has for its own."""
    from graphpod_runtime.models.by_transformers.model import refill

    refill(folder, model, dtype, read)
