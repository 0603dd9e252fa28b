"""CUDA's virtual memory, as the driver has it: addresses are reserved once, memory is mapped there and unmapped again.

torch's allocators cannot: what they unmap they forget. `libcuda.so.1` is the driver's own library, which torch has
loaded; so nothing is compiled.
Source: CUDA Driver API, "Virtual Memory Management"; vLLM's csrc/cumem_allocator.cpp makes the same calls.
"""

import ctypes
from functools import cache
from typing import Any

import torch

OUT_OF_MEMORY = 2
"""CUDA_ERROR_OUT_OF_MEMORY"""
_PINNED = _DEVICE = 1
"""CU_MEM_ALLOCATION_TYPE_PINNED; CU_MEM_LOCATION_TYPE_DEVICE."""
_READ_WRITE = 3
"""CU_MEM_ACCESS_FLAGS_PROT_READWRITE"""


class _Location(ctypes.Structure):
    """CUmemLocation"""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    """CUmemAllocationProp; `flags` is its struct allocFlags, all zeros: no compression, no RDMA."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    """CUmemAccessDesc"""

    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class DriverError(RuntimeError):
    """A call of the driver failed; the message has its words."""


class CudaDriver:
    """The calls for one device. All sizes are multiples of `granularity`."""

    def __init__(self, index: int) -> None:
        self._location = _Location(_DEVICE, index)
        self._properties = _Properties(type=_PINNED, handle_types=0, location=self._location)
        found = ctypes.c_size_t()
        self._call("cuMemGetAllocationGranularity", ctypes.byref(found), ctypes.byref(self._properties), 0)
        self.granularity = found.value

    def reserve(self, size: int) -> int:
        """Addresses for `size` bytes, which have no memory yet: the first one."""
        found = ctypes.c_uint64()
        self._call("cuMemAddressReserve", ctypes.byref(found), _size(size), _size(0), _address(0), _address(0))
        return found.value

    def free_addresses(self, address: int, size: int) -> None:
        """Gives back what `reserve` gave. Nothing is mapped there."""
        self._call("cuMemAddressFree", _address(address), _size(size))

    def map(self, address: int, size: int) -> int:
        """Memory of the device at `address`: its handle. torch.OutOfMemoryError where there is none."""
        handle = ctypes.c_uint64()
        self._call("cuMemCreate", ctypes.byref(handle), _size(size), ctypes.byref(self._properties), _address(0))
        mapped = False
        try:
            self._call("cuMemMap", _address(address), _size(size), _size(0), handle, _address(0))
            mapped = True
            access = _Access(self._location, _READ_WRITE)
            self._call("cuMemSetAccess", _address(address), _size(size), ctypes.byref(access), _size(1))
        except (DriverError, torch.OutOfMemoryError):
            if mapped:
                self._call("cuMemUnmap", _address(address), _size(size))
            self._call("cuMemRelease", handle)
            raise
        return handle.value

    def unmap(self, address: int, size: int, handle: int) -> None:
        """The memory of `handle` is the device's again."""
        self._call("cuMemUnmap", _address(address), _size(size))
        self._call("cuMemRelease", _address(handle))

    def _call(self, name: str, *arguments: Any) -> None:
        library = _library()
        _checked(library, name, getattr(library, name)(*arguments))


@cache
def _library() -> Any:
    library = ctypes.CDLL("libcuda.so.1")
    _checked(library, "cuInit", library.cuInit(0))
    return library


def _checked(library: Any, name: str, code: int) -> None:
    """torch.OutOfMemoryError or DriverError for the code of a call that failed."""
    if code == OUT_OF_MEMORY:
        raise torch.OutOfMemoryError(f"{name}: the GPU has too little free memory")
    if code:
        text = ctypes.c_char_p()
        library.cuGetErrorString(code, ctypes.byref(text))
        raise DriverError(f"{name} failed with CUDA error {code}: {(text.value or b'unknown').decode()}")


def _size(value: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(value)


def _address(value: int) -> ctypes.c_uint64:
    """A CUdeviceptr, a handle, or flags."""
    return ctypes.c_uint64(value)
