"""What floors are made of: this machine's rates, seen, and the sizes of a model, counted."""

import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

import graphpod_policy
from graphpod_policy import Device
from graphpod_runtime.base.shapes import dtype_of
from graphpod_runtime.bench import host
from graphpod_runtime.bench.figures.floors import ModelFacts, Rates
from graphpod_runtime.bench.figures.result import Machine
from graphpod_runtime.cache.kv import page_bytes
from graphpod_runtime.models.config_json import read_shape
from graphpod_runtime.models.mlp.experts import Experts
from graphpod_runtime.models.registry import build
from graphpod_runtime.models.weights.fp8 import fp8_weights

COPY_BYTES = {Device.Cuda: 4 << 30, Device.Cpu: 512 << 20}
"""Far more than any cache holds."""
MATRIX = {Device.Cuda: 8192, Device.Cpu: 1024}
"""Rows and columns of a product that keeps the whole device busy."""
TRIES, CALLS = 5, 3

PACKAGES = ("torch", "triton", "flashinfer-python", "transformers")


def rates(device: Device, dtype: str) -> Rates:
    """The best of several tries."""
    return Rates(copy_bytes=_copy_rate(device), matmul_operations=_matmul_rate(device, dtype_of(dtype)))


def _copy_rate(device: Device) -> float:
    source = torch.ones(COPY_BYTES[device], dtype=torch.uint8, device=device.value)
    target = torch.empty_like(source)
    return 2 * COPY_BYTES[device] / _least_seconds(device, lambda: target.copy_(source))


def _matmul_rate(device: Device, dtype: torch.dtype) -> float:
    size = MATRIX[device]
    # Of real numbers: over zeros a GPU draws less power and is faster than it ever is with a model.
    left, right = (torch.randn(size, size, device=device.value).to(dtype) for _ in range(2))
    return 2 * size**3 / _least_seconds(device, lambda: torch.matmul(left, right))


def _least_seconds(device: Device, work: Callable[[], Tensor]) -> float:
    """Of one call, the least mean over a few."""
    work()
    return min(_seconds(device, work) for _ in range(TRIES)) / CALLS


def _seconds(device: Device, work: Callable[[], Tensor]) -> float:
    if device is Device.Cuda:
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(CALLS):
        work()
    if device is Device.Cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - began


def model_facts(folder: Path, dtype: str, *, random: bool) -> ModelFacts:
    """From config.json alone. ModelInvalid where it cannot be read."""
    shape = read_shape(folder)
    with torch.device("meta"):
        model = build(shape, dtype_of(dtype), 1)
    return ModelFacts(
        name=folder.resolve().name,
        dtype=dtype,
        random=random,
        vocab=shape.vocab,
        parameters=_count(model.module()),
        body=_count(model.body),
        head=shape.vocab * shape.hidden,
        weight_bytes=dtype_of(dtype).itemsize,
        kv_bytes=page_bytes(shape, 1, dtype_of(dtype)),
        expert_weights=sum(one.gate_up.numel() + one.down.numel() for one in _experts(model.body)),
        chosen=shape.mixture.chosen / shape.mixture.experts if shape.mixture else 1.0,
        fp8=sum(weight.matrix.numel() for weight in fp8_weights(model.body)),
    )


def _experts(body: torch.nn.Module) -> Iterator[Experts]:
    return (one for one in body.modules() if isinstance(one, Experts))


def _count(module: torch.nn.Module) -> int:
    """Weights, those in FP8 among them, which are no parameters; not their scales."""
    in_fp8 = sum(weight.matrix.numel() for weight in fp8_weights(module))
    return in_fp8 + sum(parameter.numel() for parameter in module.parameters())


def machine(device: Device) -> Machine:
    """This one."""
    gpu = device is Device.Cuda
    return Machine(
        device=torch.cuda.get_device_name() if gpu else host.cpu(),
        driver=next(iter(host.gpus("driver_version")), None) if gpu else None,
        cpu=host.cpu(),
        cores=host.cores(),
        threads=torch.get_num_threads(),
        memory_bytes=torch.cuda.mem_get_info()[1] if gpu else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        system=platform.platform(terse=True),
        versions={
            "graphpod": graphpod_policy.__version__,
            "python": platform.python_version(),
            **{name: found for name in PACKAGES if (found := _version(name)) is not None},
        },
    )


def _version(package: str) -> str | None:
    if package == "torch":
        return str(torch.__version__)  # with the build (+cpu, +cu130), which its metadata may lack
    return host.installed(package)
