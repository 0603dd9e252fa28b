"""Whether this machine has a GPU that the engine can use, found without importing torch.

The CUDA driver answers, so `CUDA_VISIBLE_DEVICES` counts as it does for torch; whether the installed torch has CUDA
shows in its folder.
"""

import ctypes
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

DRIVER = "libcuda.so.1"
"""The driver's library. It is installed with the driver, not with CUDA."""
TORCH_CUDA = Path("lib", "libtorch_cuda.so")
"""What a torch built with CUDA has in its folder, and others have not."""


class Gpus(NamedTuple):
    """`count` GPUs that the engine can use, and the reason in words."""

    count: int
    because: str


def usable_gpus(load: Callable[[str], Any] = ctypes.CDLL, torch_folder: Path | None = None) -> Gpus:
    """The GPUs that the driver shows to this process, none when torch cannot use them. `load` opens a library,
    `torch_folder` is torch's (None: the installed one's).
    """
    try:
        driver = load(DRIVER)
    except OSError:
        return Gpus(0, "this machine has no NVIDIA driver")
    if error := driver.cuInit(0):
        return Gpus(0, f"the NVIDIA driver shows no GPU (cuInit: error {error})")
    count = ctypes.c_int(0)
    if error := driver.cuDeviceGetCount(ctypes.byref(count)):
        return Gpus(0, f"the NVIDIA driver shows no GPU (cuDeviceGetCount: error {error})")
    if count.value < 1:
        return Gpus(0, "the NVIDIA driver shows no GPU")
    folder = torch_folder or _installed_torch()
    if folder is None or not (folder / TORCH_CUDA).is_file():
        return Gpus(0, f"the installed PyTorch has no CUDA; install its CUDA build to use {_gpus(count.value)}")
    return Gpus(count.value, f"the NVIDIA driver shows {_gpus(count.value)}")


def _installed_torch() -> Path | None:
    found = find_spec("torch")
    return Path(found.origin).parent if found is not None and found.origin is not None else None


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
