"""What a start waits for outside Python, begun before torch is imported: the import takes seconds in which neither the
disk nor the driver has anything to do.

Nothing depends on it. What fails here fails again where it is needed, and is reported there.
"""

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path

from graphpod_policy import Device, EngineConfig
from graphpod_runtime.base.errors import ModelInvalid
from graphpod_runtime.base.files.regular_file import open_regular
from graphpod_runtime.compiled.bytecode import keep_bytecode
from graphpod_runtime.compiled.triton_folder import name_triton_folder
from graphpod_runtime.models.checkpoint_files import files_of

PIECE = 64 << 20
"""Bytes that the kernel is asked to read at a time: a call may wait for the disk's queue."""


def begin(config: EngineConfig) -> None:
    """Begins to read the weights that `config` names into the page cache, and on a GPU to wake the driver. Python finds
    bytecode from then on, and Triton its kernels."""
    keep_bytecode()
    name_triton_folder()
    for folder in (config.model.path, config.features.speculative_draft):
        if folder is not None:
            read_ahead(Path(folder))
    if config.features.device is Device.Cuda:
        _aside("driver", _wake_driver)


def read_ahead(folder: Path) -> None:
    """Begins to read the weights in `folder` into the page cache."""
    _aside("weights", lambda: _read_ahead(folder))


def _aside(name: str, work: Callable[[], None]) -> None:
    threading.Thread(target=work, name=f"before-torch-{name}", daemon=True).start()


def _read_ahead(folder: Path) -> None:
    with contextlib.suppress(OSError, ModelInvalid):
        for path in files_of(folder):
            with open_regular(path) as file:
                for at in range(0, os.fstat(file.fileno()).st_size, PIECE):
                    os.posix_fadvise(file.fileno(), at, PIECE, os.POSIX_FADV_WILLNEED)


def _wake_driver() -> None:
    """Initialises the driver in this process, and makes the context of its first GPU, which torch then takes: both take
    a second. Foreign calls hold no lock of the interpreter."""
    with contextlib.suppress(OSError):
        driver, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
        if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), 0) == 0:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
