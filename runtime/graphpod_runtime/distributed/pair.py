"""Two GPUs of one machine that see each other's memory: sums in fewer steps than the backend's.

Only two: a sum of two parts is the same in either order, so both have the same bits. And each of two GPUs has to send
the other its whole part, whatever the algorithm is, so one exchange is the least.
"""

import socket
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple
from zlib import crc32

import torch
import torch.distributed as distributed
from torch import Tensor

from graphpod_runtime.distributed.agreement import Ranks
from graphpod_runtime.distributed.sum_ways import MEASURED, PUSHED, WORD, Way, microseconds, most_in_pieces, way_of

TRITON = find_spec("triton") is not None
RANKS = 2
_made = False
"""Whether this process has had a pair. Symmetric memory counts the meetings of a process, and ranks must have had as
many: the others of a second engine are new processes, which would be waited for without end."""


class Pair:
    """What a rank needs for such sums with the other one of `group`."""

    def __init__(self, group: Any, device: torch.device, ranks: Ranks) -> None:
        """Returns when the other rank has come, too, and all of `ranks` have agreed on what goes in pieces."""
        import torch.distributed._symmetric_memory as symmetric

        from graphpod_runtime.distributed.exchanged_sum_triton import Memory, Shape
        from graphpod_runtime.distributed.pushed_sum_triton import NOTHING, PLACES, WORDS

        self._group = group
        words = PUSHED // WORD
        self._own = symmetric.empty(PLACES, words, dtype=torch.int32, device=device).fill_(NOTHING)
        both = symmetric.rendezvous(self._own, group.group_name)
        self._other = both.get_buffer(1 - both.rank, (PLACES, words), torch.int32)
        self._turns = torch.zeros(words // WORDS, dtype=torch.int32, device=device)
        self._shape = Shape()
        own = symmetric.empty(self._shape.bytes, dtype=torch.uint8, device=device).zero_()
        both = symmetric.rendezvous(own, group.group_name)
        other = both.get_buffer(1 - both.rank, (self._shape.bytes,), torch.uint8)
        self._memory = Memory(own, other, torch.zeros(self._shape.programs, dtype=torch.int32, device=device))
        # What one writes before the other has filled its memory would be lost.
        torch.cuda.synchronize(device)
        distributed.barrier(group)
        # Kernels and events are of the current device, which the start sets only later.
        with torch.cuda.device(device):
            self.most_in_pieces = self._measured(device, ranks)

    def sum(self, x: Tensor) -> Tensor | None:
        """The sum of what both ranks have in the place of the contiguous `x`; None: it is not for such a message. Both
        ranks ask for the same shape and type."""
        way = way_of(x.nbytes, x.dtype, self.most_in_pieces)
        if way is Way.Backend:
            return None
        if way is Way.Pieces:
            return self.in_pieces(x)
        from graphpod_runtime.distributed.pushed_sum_triton import push_into

        return push_into(x, torch.empty_like(x), self._own, self._other, self._turns)

    def in_pieces(self, x: Tensor) -> Tensor:
        """The sum as `sum` has it of large messages, of any size."""
        from graphpod_runtime.distributed.exchanged_sum_triton import exchange_into

        return exchange_into(x, torch.empty_like(x), self._memory, self._shape)

    def by_backend(self, x: Tensor) -> Tensor:
        """The sum as the backend has it."""
        total = x.clone()
        distributed.all_reduce(total, group=self._group)
        return total

    def _measured(self, device: torch.device, ranks: Ranks) -> int:
        """Bytes of the largest message that goes in pieces, by the times of the slowest rank."""
        times: list[list[int]] = [[], []]
        for nbytes in MEASURED:
            x = torch.zeros(nbytes // 2, dtype=torch.bfloat16, device=device)
            for found, way in zip(times, (self.in_pieces, self.by_backend), strict=True):
                found.append(ranks.most(microseconds(partial(way, x), partial(ranks.least, 0))))
        torch.cuda.empty_cache()  # so that the place for weights and pages is as large as before
        return most_in_pieces(*times)


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
    return Pair(group, device, ranks)
