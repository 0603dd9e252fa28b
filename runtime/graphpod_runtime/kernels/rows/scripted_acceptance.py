"""Drafts that count as right by a script and not by the model: for measurements of speed over random weights, which
agree on nothing. The texts are not the model's."""

import torch
from torch import Tensor

PLACES = 4096
"""Of the script; longer texts begin it again."""
APART = 617
"""Places between the scripts of two seats: no two sequences of a batch are in step."""


class ScriptedAcceptance:
    """Accepts the draft at a place of a text, or not, the same way for the same seed: a share `rate` of all places."""

    def __init__(self, rate: float, seed: int, device: torch.device) -> None:
        order = torch.randperm(PLACES, generator=torch.Generator().manual_seed(seed))
        self._right = (order < round(rate * PLACES)).to(device)

    def right(self, seats: Tensor, lengths: Tensor, drafts: int) -> Tensor:
        """bool [entries, drafts] for entries at `seats` [entries] whose texts have `lengths` [entries] tokens."""
        behind = torch.arange(drafts, device=lengths.device)
        return self._right[(lengths[:, None] + behind + APART * seats[:, None]) % PLACES]
