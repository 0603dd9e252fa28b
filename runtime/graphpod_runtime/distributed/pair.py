"""Two GPUs of one machine that see each other's memory: sums in fewer steps than the backend's.

Only two: a sum of two parts is the same in either order, so both have the same bits. And each of two GPUs has to send
the other its whole part, whatever the algorithm is, so one exchange is the least.
"""

import socket
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import torch
import torch.distributed as distributed
from torch import Tensor

from graphpod_runtime.distributed.agreement import Ranks
from graphpod_runtime.distributed.sum_ways import (
    MEASURED,
    PUSHED,
    ROW_WORDS,
    ROWS,
    WORD,
    Way,
    adds_at_once,
    microseconds,
    most_in_pieces,
    way_of,
)

TRITON = find_spec("triton") is not None
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
RANKS = 2
AHEAD = 1 << 30
"""This or its negative is ahead of any count of 32 bits that may overflow."""


class Pair:
    """What a rank needs for such sums with the other one of `group`."""

    def __init__(self, group: Any, device: torch.device, ranks: Ranks) -> None:
        """Returns when the other rank has come, too, and all of `ranks` have agreed on what goes in pieces."""
        import torch.distributed._symmetric_memory as symmetric

        from graphpod_runtime.distributed.exchanged_sum_triton import Memory, Shape, came
        from graphpod_runtime.distributed.pushed_sum_triton import WORDS
        from graphpod_runtime.distributed.residual_sum_triton import Memory as Rows

        self._group = group
        words = PUSHED // WORD
        self._pushed = (*_places(words, group, device), torch.zeros(words // WORDS, dtype=torch.int32, device=device))
        turns = torch.zeros(ROWS, dtype=torch.int32, device=device)
        self._rows = Rows(*_places(ROWS * ROW_WORDS, group, device), turns)
        self._shape = Shape()
        own = symmetric.empty(self._shape.bytes, dtype=torch.uint8, device=device).zero_()
        both = symmetric.rendezvous(own, group.group_name)
        other = both.get_buffer(1 - both.rank, (self._shape.bytes,), torch.uint8)
        self._memory = Memory(own, other, torch.zeros(self._shape.programs, dtype=torch.int32, device=device))
        self._came, self._ahead = came(own, self._shape), AHEAD
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

        return push_into(x, torch.empty_like(x), *self._pushed)

    def adds(self, x: Tensor) -> bool:
        """Whether `add` takes states like `x` [rows, width]."""
        return x.is_contiguous() and adds_at_once(*x.shape, x.dtype)

    def add(self, part: Tensor, x: Tensor, norm: tuple[Tensor, float] | None) -> Tensor:
        """Adds to `x` in place the sum of what both ranks have in the place of `part`, like it. Returns what `norm`,
        the weight of an RMS norm and its epsilon, makes of `x` then, or `x` without one."""
        from graphpod_runtime.distributed.residual_sum_triton import add_into

        return add_into(part.contiguous(), x, norm, self._rows)

    def end_waits(self) -> None:
        """Lets programs that wait for the other GPU now go on: each in this turn, and some in the next. What they write
        is meaningless."""
        for own in (self._pushed[0], self._rows.own):
            own.fill_(0)
        self._came.fill_(self._ahead)
        self._ahead = -self._ahead

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


def _places(words: int, group: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    """Memory of this GPU and of the other one of `group` for turns of `words`, with nothing in it."""
    import torch.distributed._symmetric_memory as symmetric

    from graphpod_runtime.distributed.pushed_sum_triton import PLACES
    from graphpod_runtime.distributed.words_triton import NOTHING

    own = symmetric.empty(PLACES, words, dtype=torch.int32, device=device).fill_(NOTHING)
    both = symmetric.rendezvous(own, group.group_name)
    return own, both.get_buffer(1 - both.rank, (PLACES, words), torch.int32)


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
    return [Place(*place) for place in ranks.gathered([_machine(), device.index or 0])]


def _machine() -> int:
    """Machines that were installed alike may have one name, and containers of one machine have names of their own. So
    both count, the name and what the kernel drew when it started."""
    drawn = BOOT_ID.read_text() if BOOT_ID.exists() else ""
    return crc32(f"{socket.gethostname()} {drawn}".encode())


def pair_of(group: Any, device: torch.device, ranks: Ranks) -> Pair | None:
    """That of `group`, or of all ranks if None; None where its ranks are not two GPUs of one machine that see each
    other's memory. All of `ranks` call it, and have the same answer."""
    group = group or distributed.group.WORLD
    places = places_of(device, ranks)
    own = [places[rank] for rank in distributed.get_process_group_ranks(group)]
    possible = device.type == "cuda" and TRITON and len(own) == RANKS and own[0].sees(own[1])
    return Pair(group, device, ranks) if ranks.least(possible) else None
