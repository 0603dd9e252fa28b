"""A span on a GPU: addresses of the driver, with pieces of memory mapped into them."""

import weakref
from typing import Any

import torch
from torch import Tensor

from graphpod_runtime.memory.cuda_driver import CudaDriver

PIECE_BYTES = 256 << 20
"""Memory that is mapped at one time: few calls for gigabytes, little lost at the end."""


class CudaSpan:
    """Is a Span. It begins without memory if it `grows`."""

    def __init__(self, size: int, device: torch.device, *, grows: bool = False) -> None:
        self.size = size
        self._device = device
        self._driver = driver = CudaDriver(device.index or 0)
        unit = driver.granularity
        self._piece = -(-PIECE_BYTES // unit) * unit
        self._whole = max(1, -(-size // unit)) * unit
        self._address = driver.reserve(self._whole)
        self._pieces: list[tuple[int, int, int]] = []
        """Address, size and handle of each piece that is mapped, in the order of addresses."""
        self._grown = 0
        self._end = weakref.finalize(self, _give_back, driver, self._pieces, self._address, self._whole)
        self._end.atexit = False  # the process's end takes all of it
        if not grows:
            self._grow_whole(size)

    def grow(self, size: int) -> None:
        first = self._mapped
        while self._mapped < size:
            piece = min(self._piece, self._whole - self._mapped)
            address = self._address + self._mapped
            self._pieces.append((address, piece, self._map(address, piece)))
        self._grown = self._mapped
        if self._mapped > first:
            self.tensor(first, self._mapped - first).zero_()

    def tensor(self, first: int, size: int) -> Tensor:
        if size == 0:
            return torch.empty(0, dtype=torch.uint8, device=self._device)
        return torch.as_tensor(_Bytes(self, self._address + first, size), device=self._device)

    def release(self) -> None:
        torch.cuda.synchronize(self._device)
        while self._pieces:
            self._driver.unmap(*self._pieces.pop())

    def restore(self) -> None:
        self._grow_whole(self._grown)

    def in_use(self) -> int:
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(self._device)
        return total - free

    def _grow_whole(self, size: int) -> None:
        try:
            self.grow(size)
        except torch.OutOfMemoryError:
            self.release()
            raise

    @property
    def _mapped(self) -> int:
        return sum(size for _, size, _ in self._pieces)

    def _map(self, address: int, size: int) -> int:
        try:
            return self._driver.map(address, size)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()  # torch keeps unused memory
            return self._driver.map(address, size)


class _Bytes:
    """What torch takes an address and a size by; it keeps this, and so the span, as long as the tensor lives."""

    def __init__(self, span: CudaSpan, address: int, size: int) -> None:
        self._span = span
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 2,
        }


def _give_back(driver: CudaDriver, pieces: list[tuple[int, int, int]], address: int, size: int) -> None:
    torch.cuda.synchronize()  # kernels in line may still use it
    while pieces:
        driver.unmap(*pieces.pop())
    driver.free_addresses(address, size)
