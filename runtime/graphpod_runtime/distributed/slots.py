"""One direction between two GPUs of one machine: the sender copies into memory of the receiver.

A backend's sends and receives are kernels that wait on the GPU for the other side, and take processors from the pass
that computes meanwhile. A copy takes none, and a signal one thread.
"""

from collections.abc import Mapping
from itertools import count
from typing import Any

import torch
from torch import Tensor

from graphpod_runtime.distributed.agreement import Ranks
from graphpod_runtime.distributed.pair import places_of

COUNT, BYTES = 8, 4 << 20
"""Slots of a direction, and the size of one: a tensor goes in as many as it needs. A sender waits where the receiver
has not emptied a slot."""


class Slots:
    """This rank's end, of the sender or the receiver."""

    def __init__(self, group: Any, device: torch.device) -> None:
        """For the two ranks of `group`; returns when the other one has come, too."""
        import torch.distributed._symmetric_memory as symmetric

        self._own = symmetric.empty(COUNT, BYTES, dtype=torch.uint8, device=device)
        self._both = symmetric.rendezvous(self._own, group.group_name)
        self._other = 1 - self._both.rank
        self._theirs = self._both.get_buffer(self._other, (COUNT, BYTES), torch.uint8)
        self._turns = count()
        self._signals = [self._both.get_signal_pad(rank, dtype=torch.int32) for rank in (self._both.rank, self._other)]
        # A kernel is loaded at its first call, which waits for those that run: none may then wait for `end_waits`.
        torch.empty_like(self._signals[0]).fill_(0)

    def put(self, tensor: Tensor) -> None:
        """Sends it. It may change when it returns."""
        for piece in tensor.contiguous().view(-1).view(torch.uint8).split(BYTES):
            turn = next(self._turns)
            slot = turn % COUNT
            if turn >= COUNT:
                self._both.wait_signal(self._other, channel=COUNT + slot)
            self._theirs[slot, : piece.numel()].copy_(piece)
            self._both.put_signal(self._other, channel=slot)

    def end_waits(self) -> None:
        """Lets what waits for the other GPU now go on, whether for a tensor or for room."""
        own, theirs = self._signals
        own.fill_(1)
        theirs.fill_(0)

    def take(self, into: Tensor) -> None:
        """The contiguous `into` becomes what was sent next."""
        for piece in into.view(-1).view(torch.uint8).split(BYTES):
            slot = next(self._turns) % COUNT
            self._both.wait_signal(self._other, channel=slot)
            piece.copy_(self._own[slot, : piece.numel()])
            self._both.put_signal(self._other, channel=COUNT + slot)


def slots_of(
    groups: Mapping[tuple[int, int], Any], rank: int, device: torch.device, ranks: Ranks
) -> dict[tuple[int, int], Slots]:
    """Of the lines of `rank` among all lines, which are given by their sender and receiver; none where the ends of some
    line are not GPUs of one machine that see each other's memory. All of `ranks` call it, and have the same answer."""
    places = places_of(device, ranks)
    if not ranks.least(device.type == "cuda" and all(places[one].sees(places[other]) for one, other in groups)):
        return {}
    return {line: Slots(group, device) for line, group in groups.items() if rank in line}
