"""The place of one engine before its weights are there: known to the engine when it starts, and to `graphpod explain`
when it is given.
"""

from dataclasses import dataclass
from typing import NamedTuple

from graphpod_policy.facts import GIB

Capability = tuple[int, int]
"""Compute capability of a GPU: major, minor."""
HOPPER: Capability = (9, 0)


class Gpu(NamedTuple):
    """One kind of GPU; `gib` is all of its memory as PyTorch reports it, less than its name says."""

    gib: float
    capability: Capability

    @property
    def memory_bytes(self) -> int:
        """The same in bytes."""
        return int(self.gib * GIB)

    def node(self, count: int = 1) -> "NodeFacts":
        """A node that has so many of them, with nothing on them."""
        return NodeFacts(count, self.capability, self.memory_bytes, self.memory_bytes - CONTEXT_BYTES)


GPUS: dict[str, Gpu] = {
    "T4": Gpu(14.7, (7, 5)),
    "L4": Gpu(22.0, (8, 9)),
    "A10": Gpu(22.0, (8, 6)),
    "L40S": Gpu(44.4, (8, 9)),
    "A100-40G": Gpu(39.4, (8, 0)),
    "A100": Gpu(79.1, (8, 0)),
    "H100": Gpu(79.1, (9, 0)),
    "H200": Gpu(139.7, (9, 0)),
    "B200": Gpu(178.3, (10, 0)),
}
"""By the name a user gives with `--node gpu=NAME`."""

CONTEXT_BYTES = GIB // 2
"""What a CUDA context takes of a GPU before anything else is there."""
PROCESS_BYTES = GIB // 2
"""What front and engine take of a container's memory before anything else is there: interpreters, torch."""
RANK_BYTES = GIB // 4
"""What the process of each further rank takes of it at least: assumed, not measured."""


class Architecture(NamedTuple):
    """What one piece of GPU code was compiled for: machine code for one compute capability, or PTX, which the driver
    compiles where it runs.
    """

    capability: Capability
    ptx: bool = False

    def runs_on(self, gpu: Capability) -> bool:
        """Whether a GPU of this compute capability runs it. Machine code runs on later minor versions of its major one,
        PTX on everything later. From 9.0 on code may use what one chip alone has (sm_90a): it counts for that chip.
        """
        if self.capability >= HOPPER:
            return gpu == self.capability
        return gpu >= self.capability and (self.ptx or gpu[0] == self.capability[0])

    def __str__(self) -> str:
        """In NVIDIA's words, as sm_80."""
        major, minor = self.capability
        return f"{'compute' if self.ptx else 'sm'}_{major}{minor}"


@dataclass(frozen=True, slots=True)
class Kernels:
    """flashinfer's kernels for a model's heads and types, as built ahead of time: what each was compiled for; none: it
    is not there. `where` they were looked for, in words.
    """

    fa2: tuple[Architecture, ...]
    fa3: tuple[Architecture, ...]
    installed: bool = True
    where: str = ""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """None: not known. `gpus` are those that the engine's process can see; `memory_bytes` all memory of one GPU;
    `free_bytes` what is free of it before the weights, on a CPU of the container's memory, for each rank;
    `container_bytes` the memory that the container may have in all.
    """

    gpus: int | None = None
    capability: Capability | None = None
    memory_bytes: int | None = None
    free_bytes: int | None = None
    kernels: Kernels | None = None
    container_bytes: int | None = None


NOWHERE = NodeFacts()


def processes_bytes(ranks: int) -> int:
    """What the front and `ranks` processes of the engine take of a container's memory before anything else is there."""
    return PROCESS_BYTES + (ranks - 1) * RANK_BYTES
