"""What the stages of a pipeline send each other: hidden states to the next one, answers from the last to the first.

Nothing of it is in a graph: states are received into static buffers before a replay, and sent after it. Every direction
has a process group of its own, so that none waits behind what goes the other way. While a capture is under way nothing
is exchanged, as with collectives.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor

from graphpod_runtime.distributed.collectives import is_silent
from graphpod_runtime.distributed.slots import BYTES, COUNT, Slots

MOST_ON_THEIR_WAY = 4
"""Tensors that a stage has sent and the next one has not taken: beyond them the sender waits."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a rank is: stages have consecutive ranks, each `tensor` of them."""

    rank: int
    tensor: int
    stages: int

    @property
    def stage(self) -> int:
        return self.rank // self.tensor

    @property
    def part(self) -> int:
        """Its place among the ranks of its stage."""
        return self.rank % self.tensor

    @property
    def begins(self) -> bool:
        return self.stage == 0

    @property
    def ends(self) -> bool:
        return self.stage == self.stages - 1


@dataclass(slots=True)
class Pipeline:
    """The lines of one rank."""

    position: Position
    groups: dict[tuple[int, int], Any]
    """By the ranks that send and receive."""
    slots: dict[tuple[int, int], Slots] = field(default_factory=dict)
    """Lines of this rank that go from memory to memory; the others go by their groups."""
    waits_for: str = ""
    """What of another rank it waits for, for people, who count stages from one; empty: nothing."""
    _sent: deque[tuple[Any, Tensor]] = field(default_factory=deque)

    def meet(self, device: torch.device) -> None:
        """One number on every line: what makes it and takes memory for it does so now, not at the first request."""
        number = torch.zeros(1, device=device)
        if not self.position.begins:
            self.take_states(number)
        self.pass_on(number)
        self.answer(number)
        self.take_answer(number)

    def take_states(self, rows: Tensor) -> None:
        """Hidden states of the stage before, into `rows`."""
        here = self.position
        self._receive(rows, here.rank - here.tensor, f"hidden states of stage {here.stage}")

    def pass_on(self, states: Tensor) -> None:
        """Sends `states` to the next stage, unless this is the last. They may change when it returns."""
        if not self.position.ends:
            self._send(states, self.position.rank + self.position.tensor)

    def answer(self, result: Tensor) -> None:
        """`result` of the last stage, whose ranks all have it, to the first rank."""
        if self.position.ends and self.position.part == 0:
            self._send(result, 0)

    def take_answer(self, into: Tensor) -> None:
        """At the first rank, `into` becomes the next answer of the last stage; any other rank has none."""
        if self.position.rank == 0:
            last = (self.position.stages - 1) * self.position.tensor
            self._receive(into, last, f"answers of stage {self.position.stages}")

    def room_for(self, answers: Sequence[int]) -> int:
        """How many of the latest of these answers, bytes each, the last stage can send before the first rank takes
        one."""
        slots = self.slots.get(((self.position.stages - 1) * self.position.tensor, 0))
        left, room = MOST_ON_THEIR_WAY if slots is None else COUNT, 0
        for answer in reversed(answers):
            left -= min(1, answer) if slots is None else -(-answer // BYTES)
            if left < 0:
                break
            room += 1
        return room

    def _send(self, tensor: Tensor, to: int) -> None:
        if is_silent():
            return
        if (slots := self.slots.get((self.position.rank, to))) is not None:
            slots.put(tensor)
            return
        while self._sent and self._sent[0][0].is_completed():
            self._sent.popleft()
        while len(self._sent) >= MOST_ON_THEIR_WAY:
            self.waits_for = f"rank {to}, which takes nothing"
            self._sent.popleft()[0].wait()
            self.waits_for = ""
        leaving = tensor.clone()
        self._sent.append((distributed.isend(leaving, to, self.groups[self.position.rank, to]), leaving))

    def _receive(self, into: Tensor, sender: int, what: str) -> None:
        if is_silent():
            return
        if (slots := self.slots.get((sender, self.position.rank))) is not None:
            slots.take(into)
            return
        self.waits_for = what
        distributed.recv(into, sender, self.groups[sender, self.position.rank])
        self.waits_for = ""
