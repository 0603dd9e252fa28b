"""Segments and pools of the recorder, which stands for CUDA graphs on a CPU."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from graphpod_runtime.base import opaque_call
from graphpod_runtime.graphs.segments.addresses import Addresses
from graphpod_runtime.graphs.segments.arena import Arena
from graphpod_runtime.graphs.segments.recorder import HostReadGuard, Recorder
from graphpod_runtime.graphs.segments.segment import Calls


class RecorderSegment:
    """A Segment of noted ops."""

    def __init__(self, arena: Arena, addresses: Addresses) -> None:
        self._arena = arena
        self._recorder = Recorder(arena, addresses)
        self._guard = HostReadGuard()

    def begin(self) -> None:
        self._guard.__enter__()
        self._recorder.__enter__()
        opaque_call.record(self)

    def abort(self) -> None:
        opaque_call.record(None)
        self._recorder.__exit__(None, None, None)
        self._guard.__exit__(None, None, None)

    def call(self, code: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Notes `code(*arguments)` as one call, run as if nothing were recorded."""
        self.abort()
        try:
            return self._recorder.note(code, arguments, code(*arguments))
        finally:
            self.begin()

    def end(self) -> Calls:
        """Overwrites every value still alive: NaN, -1, True."""
        self.abort()
        for offset, block in self._arena.live.items():
            self._arena.bytes_of(offset).fill_(1 if block.dtype is torch.bool else 0xFF)
        return tuple(self._recorder.calls)


class RecorderPool:
    """A Pool over one arena."""

    def __init__(self, addresses: Addresses, limit: int | None = None) -> None:
        self.arena = Arena() if limit is None else Arena(limit)
        self._addresses = addresses

    def warm(self, code: Callable[[], object]) -> None:
        """Nothing: libraries need no first call on the CPU, and the arena is one stretch from the start."""

    def capturing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def segment(self) -> RecorderSegment:
        return RecorderSegment(self.arena, self._addresses)

    def pool_bytes(self) -> int:
        return self.arena.high_water

    def driver_bytes(self) -> int:
        """None: the recorder has no driver under it, and its Python objects are not device memory."""
        return 0

    def verify(self) -> None:
        self._addresses.verify()
