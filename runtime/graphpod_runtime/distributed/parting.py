"""How a rank goes on where the others have been ended in the midst of what they did together: on a GPU, kernels wait
for them without end, and so does whoever waits for these kernels, or frees memory.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import torch
import torch.distributed as distributed
import torch.distributed.distributed_c10d as c10d

log = logging.getLogger("graphpod.engine")

GONE_SECONDS = 10.0
"""A GPU has so long to end what waits for ranks that have ended."""


class Waits(Protocol):
    """Kernels that wait until another GPU has written to this one's memory."""

    def end_waits(self) -> None:
        """Writes what they wait for now, on the current stream; what they compute then is meaningless."""


_lock = threading.Lock()
_device: torch.device | None = None
_waits: tuple[Waits, ...] = ()
"""Of the GPU of this rank, while it is connected."""
_abort: threading.Thread | None = None
"""Ends the groups of ranks that have not left each other."""


def may_wait(device: torch.device, waits: Sequence[Waits]) -> None:
    """From now on kernels of this rank's `device` may wait for others: those of `waits`, and NCCL's."""
    global _device, _waits
    if device.type == "cuda":
        with _lock:
            _device, _waits = device, tuple(waits)


def let_go(seconds: float = GONE_SECONDS) -> None:
    """After the other ranks have been ended: kernels that wait for them end. Their results are meaningless. Returns
    when the GPU has nothing left to do, or after so many seconds. Any thread may call it."""
    global _abort
    with _lock:
        if _device is None:
            return
        if _abort is None:
            _abort = _thread(_abort_groups)
        idle, until = _thread(partial(torch.cuda.synchronize, _device)), time.monotonic() + seconds
        aside = torch.cuda.Stream(_device)
        while idle.is_alive() and time.monotonic() < until:
            with torch.cuda.stream(aside):
                for waits in _waits:
                    waits.end_waits()
            aside.synchronize()
            idle.join(0.001)


def _thread(call: Callable[[], object]) -> threading.Thread:
    """One that has begun with `call`."""

    def work() -> None:
        try:
            call()
        except RuntimeError as error:  # such as: a stream of this process is captured, which fails, too
            log.warning("the end of what ranks had together: %s", error)

    thread = threading.Thread(target=work, name="ranks-gone", daemon=True)
    thread.start()
    return thread


def _abort_groups() -> None:
    """Ends NCCL's communicators: their kernels first, and the rest once graphs that hold such kernels are gone, and
    other kernels have ended."""
    if distributed.is_initialized():
        for group in [one for one in c10d._world.pg_names if distributed.get_backend(one) != "nccl"]:
            distributed.destroy_process_group(group)
        c10d._abort_process_group()


def end_groups() -> None:
    """Leaves the other ranks. Graphs that hold collectives are gone."""
    global _device, _waits, _abort
    with _lock:
        aborted, _device, _waits, _abort = _abort, None, (), None
    if aborted is not None:
        aborted.join(GONE_SECONDS)
    elif distributed.is_initialized():
        distributed.destroy_process_group()
