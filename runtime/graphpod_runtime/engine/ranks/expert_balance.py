"""What ranks compute of the experts that are spread over them, counted on the device of the first one.

All ranks route all tokens alike, so the first one knows the rows of each. Passes and their graphs count, and every
PASSES passes the totals are copied to the host, which does not wait for the copy.
"""

import torch
from torch import Tensor

from graphpod_policy.config import FeatureConfig
from graphpod_policy.model.mixture import MOST_EXPERTS
from graphpod_runtime.kernels.mixture.choice_totals import count_choices
from graphpod_runtime.wire.counters import Counters

PASSES = 16
"""From one copy to the next: at most so many are not counted yet."""


class ExpertBalance:
    """Of one engine with expert parallel. It exists before weights are loaded: captures take its totals."""

    def __init__(self, features: FeatureConfig, device: torch.device, counters: Counters) -> None:
        self._totals = torch.zeros(MOST_EXPERTS, dtype=torch.int64, device=device)
        self._copy = self._totals.cpu()
        self._event: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._copy, self._event = self._copy.pin_memory(), torch.cuda.Event()
        self._groups, slices = features.expert, features.tensor // features.expert
        self._adders = [
            [counters.adder("graphpod_expert_rows_total", rank=str(group * slices + rank)) for rank in range(slices)]
            for group in range(features.expert)
        ]
        self._passes, self._under_way = 0, False
        count_choices(self._totals)

    def begin(self, experts: int) -> None:
        """The engine, whose layers have so many experts, is Ready: what captures and checks computed does not count."""
        last = torch.arange(1, self._groups + 1) * (experts // self._groups) - 1
        self._last = last.tolist()
        self._known = self._rows(self._totals.cpu())

    def landed(self) -> None:
        """A pass has landed."""
        self._passes += 1
        if self._under_way:
            if self._event is not None and not self._event.query():
                return
            self._under_way = False
            self._count()
        if self._passes >= PASSES:
            self._passes, self._under_way = 0, True
            self._copy.copy_(self._totals, non_blocking=True)
            if self._event is not None:
                self._event.record(torch.cuda.current_stream(self._totals.device))

    def _count(self) -> None:
        rows = self._rows(self._copy)
        for adders, now, before in zip(self._adders, rows, self._known, strict=True):
            for add in adders:
                add(now - before)
        self._known = rows

    def _rows(self, totals: Tensor) -> list[int]:
        """Of each group of ranks, of totals that count an expert and those before it."""
        ends = [int(totals[last]) for last in self._last]
        return [end - start for start, end in zip([0, *ends], ends, strict=False)]
