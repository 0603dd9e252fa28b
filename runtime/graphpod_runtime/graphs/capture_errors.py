"""What a failure at capture amounts to, and where the graph was captured."""

import traceback
from dataclasses import dataclass

import torch

from graphpod_runtime.base.errors import CaptureFailed, CaptureOutOfMemory, DeviceFailed, GraphError


@dataclass(frozen=True, slots=True)
class CaptureSite:
    """Where a graph is captured, for messages."""

    model: str
    phase: str
    size: int

    def __str__(self) -> str:
        return f"model {self.model}, {self.phase} size {self.size}"


def located(error: BaseException, where: str) -> BaseException:
    """What a failed capture raises: the allocator's out of memory stays itself, an error of the device is DeviceFailed,
    all other failures of the code are CaptureFailed.
    """
    # Frames of the failed code hold pool tensors; the pool is dropped only when they let go.
    traceback.clear_frames(error.__traceback__)
    if not isinstance(error, Exception):
        return error
    shown = error if failure_of(error) is not CaptureFailed or isinstance(error, GraphError) else repr(error)
    return failure_of(error)(f"{where}: {shown}")


def failure_of(error: Exception) -> type[CaptureFailed | CaptureOutOfMemory | DeviceFailed]:
    """What an error in captured code or in a break at capture amounts to."""
    if isinstance(error, CaptureOutOfMemory | MemoryError | torch.OutOfMemoryError):
        return CaptureOutOfMemory
    return DeviceFailed if isinstance(error, torch.AcceleratorError | DeviceFailed) else CaptureFailed
