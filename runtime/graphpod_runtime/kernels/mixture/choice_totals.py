"""How often each expert was chosen: totals on the device, to which routing adds as part of passes and of their graphs.

They are as static as weights are, so that a replay adds to them, too. The host reads them when it wants to.
"""

from torch import Tensor

_totals: Tensor | None = None
"""What routing adds to; None: nothing is counted."""


def count_choices(totals: Tensor | None) -> None:
    """From now on, where this process has a share of the experts that begins with the first, routing adds to
    `totals` [experts or more], int64: for each expert the pairs of a token and that expert or one before it. None: it
    counts no longer. Graphs go on with the tensor that was there when they were captured."""
    global _totals
    _totals = totals


def totals_of(scores: Tensor, first: int, held: int) -> Tensor | None:
    """The totals [experts] that routing by `scores` [tokens, experts] adds to, of a rank that has `held` experts from
    `first` on; None: it is not counted."""
    experts = scores.shape[1]
    if _totals is None or first or held == experts or _totals.device != scores.device:
        return None
    return _totals[:experts]
