"""Two GPUs of one machine that see each other's memory: sums in fewer steps than the backend's.

Only two: a sum of two parts is the same in either order, so both have the same bits. In a graph on two
H100 the backend, NCCL, takes 12 µs for 8 KiB and 40 for 4 MiB; this takes 2.7 and 30.
"""

import socket
from importlib.util import find_spec
from typing import Any, NamedTuple
from zlib import crc32

import torch
import torch.distributed as distributed
from torch import Tensor

from graphpod_runtime.distributed.agreement import Ranks

TRITON = find_spec("triton") is not None
RANKS = 2
PUSHED, HALVED = 256 << 10, 16 << 20
"""Bytes of the largest message that each GPU writes to the other, and of the largest of which each adds up one half."""
WORD, ALIGNED = 4, 16
"""Bytes that such messages are multiples of."""
DTYPES = (torch.bfloat16, torch.float32)
"""That torch adds up by halves."""
_made = False
"""Whether this process has had a pair. Symmetric memory counts the meetings of a process, and ranks must have had as
many: the others of a second engine are new processes, which would be waited for without end."""


class Pair:
    """What a rank needs for such sums with the other one of `group`."""

    def __init__(self, group: Any, device: torch.device) -> None:
        """Returns when the other rank has come, too."""
        import torch.distributed._symmetric_memory as symmetric

        from graphpod_runtime.distributed.pushed_sum_triton import NOTHING, PLACES, WORDS

        self._group: str = group.group_name
        words = PUSHED // WORD
        self._own = symmetric.empty(PLACES, words, dtype=torch.int32, device=device).fill_(NOTHING)
        both = symmetric.rendezvous(self._own, self._group)
        self._other = both.get_buffer(1 - both.rank, (PLACES, words), torch.int32)
        self._turns = torch.zeros(words // WORDS, dtype=torch.int32, device=device)
        self._halves = symmetric.empty(HALVED, dtype=torch.uint8, device=device)
        symmetric.rendezvous(self._halves, self._group)
        # What one writes before the other has filled its memory would be lost.
        torch.cuda.synchronize(device)
        distributed.barrier(group)

    def sum(self, x: Tensor) -> Tensor | None:
        """The sum of what both ranks have in the place of the contiguous `x`; None: it is not for such a message. Both
        ranks ask for the same shape and type."""
        if x.nbytes <= PUSHED and x.nbytes % WORD == 0 and x.is_floating_point():
            from graphpod_runtime.distributed.pushed_sum_triton import push_into

            return push_into(x, torch.empty_like(x), self._own, self._other, self._turns)
        if x.nbytes > HALVED or x.nbytes % ALIGNED or x.dtype not in DTYPES:
            return None
        seen = self._halves[: x.nbytes].view(x.dtype).view(x.shape)
        seen.copy_(x)
        total = torch.empty_like(x)
        torch.ops.symm_mem.two_shot_all_reduce_out(seen, "sum", self._group, total)
        return total


class Place(NamedTuple):
    """Where a rank's GPU is."""

    machine: int
    """A number that ranks of one machine have in common, and others hardly."""
    device: int

    def sees(self, other: "Place") -> bool:
        """Whether they are two GPUs of one machine, and this one sees the other's memory. Only for ranks with GPUs."""
        if self.machine != other.machine or self.device == other.device:
            return False
        return torch.cuda.can_device_access_peer(self.device, other.device)


def places_of(device: torch.device, ranks: Ranks) -> list[Place]:
    """Those of all `ranks`, in their order; this one's is on `device`."""
    machine = crc32(socket.gethostname().encode())
    return [Place(*place) for place in ranks.gathered([machine, device.index or 0])]


def pair_of(group: Any, device: torch.device, ranks: Ranks) -> Pair | None:
    """That of `group`, or of all ranks if None; None where its ranks are not two GPUs of one machine that see each
    other's memory, and for later engines of a process. All of `ranks` call it, and have the same answer."""
    global _made
    group = group or distributed.group.WORLD
    places = places_of(device, ranks)
    own = [places[rank] for rank in distributed.get_process_group_ranks(group)]
    possible = device.type == "cuda" and TRITON and len(own) == RANKS and own[0].sees(own[1]) and not _made
    if not ranks.least(possible):
        return None
    _made = True
    return Pair(group, device)
