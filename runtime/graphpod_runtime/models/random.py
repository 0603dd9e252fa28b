"""A model of a given config.json with random weights: what benchmarks and tests run where weights cannot be had."""

from pathlib import Path

import torch

from graphpod_runtime.base.progress import OnProgress, ignore_progress
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.models.config_json import read_shape
from graphpod_runtime.models.model import Model
from graphpod_runtime.models.registry import build, by_transformers, computed_by_transformers
from graphpod_runtime.models.weights.fp8 import fp8_weights

DEVIATION = 0.02
"""Of matrices: what trained models start from. Norm weights are 1, biases 0."""


def random_model(
    folder: Path,
    dtype: torch.dtype,
    max_model_len: int,
    device: torch.device = HOST,
    read: OnProgress = ignore_progress,
    quantize: bool = False,
) -> Model:
    """As `load_model`, but only config.json is read; the same folder gives the same weights on the same device."""
    if computed_by_transformers(folder):
        return by_transformers(folder, dtype, max_model_len, device, read, quantize, random=True)
    shape = read_shape(folder, quantize)
    with device:
        model = build(shape, dtype, min(max_model_len, shape.max_position))
    model.module().to(device)
    generator = torch.Generator(device).manual_seed(0)
    for name, parameter in model.module().named_parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, DEVIATION, generator=generator)
        else:
            parameter.data.fill_(0.0 if name.endswith("bias") else 1.0)
        read()
    for weight in fp8_weights(model.module()):
        weight.fill(torch.empty(weight.matrix.shape, device=device).normal_(0, DEVIATION, generator=generator))
        read()
    return model
