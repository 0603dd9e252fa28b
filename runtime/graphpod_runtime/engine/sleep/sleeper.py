"""What leaves the device of a Ready engine, and how it comes back to the same addresses.

Weights and KV cache lie in spans. Graphs, their pools and static buffers stay: graphs hold their addresses, and they
are small next to what goes. Weights come back from a copy on the host, which is made by the first sleep and kept,
because weights do not change; where the host has no room for one, and always on a CPU, from the model's folder. The KV
cache comes back empty.
"""

from collections.abc import Callable
from enum import StrEnum

import torch

from graphpod_runtime.base.errors import ModelInvalid
from graphpod_runtime.base.progress import OnProgress
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.engine.sleep.problems import CannotReload, CannotSleep, CannotWake
from graphpod_runtime.engine.sleep.refill import Refill
from graphpod_runtime.memory.host_copy import HostCopy
from graphpod_runtime.memory.span import Span

RESERVE_BYTES = 1 << 30
"""Of the host's memory, which a copy of the weights leaves free."""


class Source(StrEnum):
    """Where weights come back from."""

    Memory = "Memory"
    Disk = "Disk"


class Sleeper:
    """One engine's. No pass is in flight while a method runs. `spans` are None where the engine does not sleep: then it
    only reloads."""

    def __init__(
        self,
        weights: Span | None,
        cache: KvCache,
        refill: Refill | None,
        room: Callable[[], int],
        settled: Callable[[], None],
        check: Callable[[OnProgress], None],
        reloads: bool = True,
    ) -> None:
        """`refill`: None where weights were not read from a folder. `room`: bytes that the host has free. `settled` is
        called when everything is in its place again: AddressChanged if it is not. `check`: SelfCheckFailed if a graph
        is wrong; it is called with what `reload` is. `reloads`: its user lets weights be replaced."""
        self.asleep = False
        self.reloads = reloads and refill is not None
        self.source: Source | None = None
        self.room = room
        self._weights, self._cache, self._refill = weights, cache, refill
        self._settled, self._check = settled, check
        self._copy: HostCopy | None = None

    @property
    def sleeps(self) -> bool:
        """Whether weights can leave the device."""
        return self._weights is not None and bool(self._cache.spans)

    @property
    def current(self) -> bool:
        """Whether the weights on the device are those that the model's folder has."""
        return self.reloads and not self.asleep and self._refill is not None and self._refill.untouched

    @property
    def copies(self) -> bool:
        """Whether a copy on the host frees anything: on a CPU the weights are there."""
        return self._cache.device.type != "cpu"

    def sleep(self, read: OnProgress) -> int:
        """Weights and cache leave the device; the bytes that it has free then in addition. CannotSleep, and nothing is
        changed, where they could not come back. `read` is called now and then.
        """
        weights = self._span()
        before = weights.in_use()
        if self._copy is None:
            self._copy = self._copied(weights, read)
        if self._copy is None and self._refill is None:
            raise CannotSleep("the host has too little free memory for a copy of the weights, and no file has them")
        self.source = Source.Disk if self._copy is None else Source.Memory
        weights.release()
        self._cache.release()
        self.asleep = True
        return max(0, before - weights.in_use())

    def wake(self, read: OnProgress) -> None:
        """Both are back. CannotWake, and still asleep, where the device has no room for them or the folder has other
        files now; ModelInvalid if one breaks while it is read: nothing can be computed then."""
        if self._copy is None and self._refill is not None and self._refill.replaced:
            todo = "POST /reload reads new ones" if self.reloads else "restart the pod to read new ones"
            raise CannotWake(f"{self._refill.folder}: the weights were replaced meanwhile; {todo}")
        weights = self._take_memory()
        if self._copy is not None:
            self._copy.write(weights, read)
        else:
            assert self._refill is not None, "sleep has refused"
            self._refill.write(read)
        self._settled()
        self.asleep = False

    def reload(self, read: OnProgress) -> None:
        """The weights that the model's folder has now, in the places of those before; awake. CannotReload, and nothing
        is changed, for another model or one that is not whole; CannotWake as for `wake`. ModelInvalid or
        SelfCheckFailed after that: nothing can be computed then.
        """
        if self._refill is None or not self.reloads:
            raise CannotReload("spec.engine.reload is not set, or these weights were not read from a folder")
        try:
            self._refill.check(quantised_cache(self._cache))
        except ModelInvalid as error:
            raise CannotReload(str(error)) from error
        if self.asleep:
            self._take_memory()
            self.asleep = False
        self._copy = None
        self._refill.write(read)
        self._check(read)
        self._settled()

    def _take_memory(self) -> Span:
        weights = self._span()
        try:
            weights.restore()
            self._cache.restore()
        except torch.OutOfMemoryError as error:
            weights.release()
            raise CannotWake(f"the device has no room for weights and KV cache, others may have it: {error}") from error
        return weights

    def _copied(self, weights: Span, read: OnProgress) -> HostCopy | None:
        """None where the host has no room, or the weights are there already."""
        if not self.copies or self.room() < weights.size + RESERVE_BYTES:
            return None
        try:
            return HostCopy(weights, read)
        except (RuntimeError, MemoryError):
            if self._refill is None:
                raise
            return None  # of pinned memory there may be less than is free

    def _span(self) -> Span:
        if self._weights is None or not self._cache.spans:
            raise CannotSleep("spec.engine.sleep is not set")
        return self._weights


def quantised_cache(cache: KvCache) -> bool:
    """Whether graphs hold scales of it."""
    return cache.keys.dtype.itemsize == 1
