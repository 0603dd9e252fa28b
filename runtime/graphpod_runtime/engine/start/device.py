"""Where an engine computes, and what start asks of that place. All sizes in bytes."""

from collections.abc import Callable
from typing import Protocol

import torch

from graphpod_policy import Device, ExitCode, FeatureConfig
from graphpod_policy.start.obstacle import Obstacle
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.distributed.agreement import ALONE, Ranks
from graphpod_runtime.engine.start import memory
from graphpod_runtime.graphs.segments.addresses import Addresses
from graphpod_runtime.graphs.segments.cpu import RecorderPool
from graphpod_runtime.graphs.segments.cuda import CudaPool
from graphpod_runtime.graphs.segments.segment import Pool
from graphpod_runtime.memory.cuda_span import CudaSpan
from graphpod_runtime.memory.host_span import HostSpan
from graphpod_runtime.memory.span import Span

NAME_BYTES = 64
"""Of a GPU's name that other ranks hear."""


class Place(Protocol):
    """A device, as start sees it."""

    device: torch.device

    def memory_bytes(self) -> int | None:
        """All memory of one GPU; None on a CPU."""

    def available_bytes(self) -> int:
        """What may still be taken."""

    def peak_of(self, run: Callable[[], object]) -> int:
        """By how much `run` raises what is in use at its peak."""

    def pool(self, addresses: Addresses) -> Pool:
        """An empty pool for one phase's graphs, which may touch `addresses` and the pool."""

    def wait(self) -> None:
        """Until the device has done all that it was given."""

    def span(self, size: int, *, grows: bool = False) -> Span:
        """Addresses of `size` bytes whose memory can leave the device; with `grows` they have none at first."""


class Host:
    """The CPU; graphs by the recorder."""

    device = torch.device("cpu")

    def memory_bytes(self) -> None:
        return None

    def available_bytes(self) -> int:
        return memory.available_bytes()

    def peak_of(self, run: Callable[[], object]) -> int:
        return memory.peak_of(run)

    def pool(self, addresses: Addresses) -> Pool:
        return RecorderPool(addresses, limit=self.available_bytes())

    def wait(self) -> None:
        """Nothing is left to do when a call returns."""

    def span(self, size: int, *, grows: bool = False) -> Span:
        return HostSpan(size)


class Gpu:
    """One CUDA device; CUDA graphs."""

    def __init__(self, index: int = 0) -> None:
        """StartFailure where there is no such device: an engine must not run elsewhere than it was asked to."""
        require_gpus(index + 1)
        self.device = torch.device("cuda", index)
        torch.cuda.set_device(self.device)

    def memory_bytes(self) -> int:
        return torch.cuda.mem_get_info(self.device)[1]

    def available_bytes(self) -> int:
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self.device)[0]

    def peak_of(self, run: Callable[[], object]) -> int:
        torch.cuda.synchronize(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        run()
        torch.cuda.synchronize(self.device)
        return torch.cuda.max_memory_allocated(self.device) - before

    def pool(self, addresses: Addresses) -> Pool:
        return CudaPool(self.device, addresses)

    def wait(self) -> None:
        torch.cuda.synchronize(self.device)

    def span(self, size: int, *, grows: bool = False) -> Span:
        return CudaSpan(size, self.device, grows=grows)


class SharedPlace:
    """The place of one of several ranks: all of them see the least that any has."""

    def __init__(self, own: Place, ranks: Ranks, here: int) -> None:
        """`here` are the ranks of this machine."""
        self.device = own.device
        self._own, self._ranks, self._here = own, ranks, here

    def memory_bytes(self) -> int | None:
        own = self._own.memory_bytes()
        return None if own is None else self._ranks.least(own)

    def available_bytes(self) -> int:
        # Ranks on the host take from the same memory.
        sharing = self._here if self.device.type == "cpu" else 1
        return self._ranks.least(self._own.available_bytes() // sharing)

    def peak_of(self, run: Callable[[], object]) -> int:
        return self._ranks.most(self._own.peak_of(run))

    def pool(self, addresses: Addresses) -> Pool:
        return self._own.pool(addresses)

    def wait(self) -> None:
        self._own.wait()

    def span(self, size: int, *, grows: bool = False) -> Span:
        return self._own.span(size, grows=grows)


def require_gpus(count: int) -> None:
    """StartFailure where there are fewer."""
    if (there := torch.cuda.device_count()) < count:
        seen, wanted = "1 GPU" if there == 1 else f"{there} GPUs", "one" if count == 1 else f"{count}"
        what = f"PyTorch {torch.__version__} sees {seen}, the engine is to run on {wanted}"
        raise StartFailure.by(Obstacle.of(ExitCode.GpuMissing, what))


def require_alike(ranks: Ranks, capability: tuple[int, int], name: str) -> None:
    """StartFailure, at all `ranks`, where their GPUs are of several compute capabilities; this one's has `capability`
    and `name`. They would have other kernels and types of numbers, and so other plans: each would wait for the others
    at another place."""
    own = [*capability, *name.encode()[:NAME_BYTES].ljust(NAME_BYTES, b"\0")]
    each = {tuple(found) for found in ranks.gathered(own)}
    if len({found[:2] for found in each}) > 1:
        kinds = sorted(f"{bytes(words).rstrip(bytes(1)).decode()} ({major}.{minor})" for major, minor, *words in each)
        what = f"the ranks have GPUs of several compute capabilities: {', '.join(kinds)}"
        step = "give them GPUs of one type: spec.placement, or CUDA_VISIBLE_DEVICES outside Kubernetes"
        raise StartFailure.by(Obstacle.of(ExitCode.ParallelismInvalid, what, step))


def device_of(features: FeatureConfig, rank: int) -> torch.device:
    """The GPU of a rank, or the host. StartFailure where there are fewer GPUs than ranks."""
    if features.device is not Device.Cuda:
        return Host.device
    require_gpus(features.ranks_of_node)
    return Gpu(rank % features.ranks_of_node).device


def place_of(device: Device, ranks: Ranks = ALONE, here: int = 1) -> Place:
    """The place that a configuration names; each of the ranks `here`, of this machine, has a GPU of its own."""
    own = Gpu(ranks.rank % here) if device is Device.Cuda else Host()
    return own if ranks.count == 1 else SharedPlace(own, ranks, here)
