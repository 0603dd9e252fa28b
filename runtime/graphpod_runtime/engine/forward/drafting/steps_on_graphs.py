"""What every model that drafts has in common: a pass of steps from the latest tokens to the drafts, on graphs."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from graphpod_policy import FallbackReason
from graphpod_runtime.attention.base import AttentionBackend
from graphpod_runtime.engine.forward.passes import Code
from graphpod_runtime.graphs.captured_graphs import CapturedGraph
from graphpod_runtime.kernels.rows.prompt_lookup import Found

Counted = Callable[[int | FallbackReason], None]
"""Hears of every pass: the sequences of its graph, or why it ran eagerly."""


class Steps(Protocol):
    """All draft steps as one pass, on static buffers."""

    def load(self, seats: Tensor, size: int) -> None: ...
    def drafts(self, count: int) -> Tensor: ...
    def code(self, size: int) -> Code: ...


@dataclass(slots=True)
class StepsOnGraphs:
    """Is a Proposer. `counted` is set when the engine is Ready."""

    attention: AttentionBackend
    """Over the cache of what drafts."""
    steps: Steps
    _: KW_ONLY
    graphs: dict[int, CapturedGraph] = field(default_factory=dict)
    """Of the steps, by sequences."""
    eagerly: FallbackReason = FallbackReason.Disabled
    """Why passes run eagerly where there are no graphs."""
    counted: Counted = lambda ran: None
    verify: Callable[[], None] = lambda: None
    """Before every replay; a debug mode."""

    def propose(self, state: Tensor, seats: Tensor, slot_tokens: Tensor, pages: int) -> Found:
        """As `Proposer.propose`."""
        count = seats.shape[0]
        size = min((size for size in self.graphs if size >= count), default=None)
        self.steps.load(seats, size or count)
        if size is not None:
            self.verify()
            self.graphs[size].replay(count)
        else:
            self.steps.code(count)(self.attention.run)
        self.counted(size or (FallbackReason.SizeAboveLadder if self.graphs else self.eagerly))
        return Found(self.steps.drafts(count), torch.ones(count, dtype=torch.bool, device=seats.device))
