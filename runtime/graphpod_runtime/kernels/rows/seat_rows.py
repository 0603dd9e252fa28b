"""Rows of a decode step, out of what the device keeps of sequences and back into it; on a GPU in one launch each."""

from importlib.util import find_spec

import torch
from torch import Tensor

from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.kernels.rows.seat_rows_contract import LENGTH, PAGES, TOKEN, SeatRows, StepRows


class TorchSeatRows:
    """SeatRows on any device."""

    def read(self, state: Tensor, seats: Tensor, page_size: int, into: StepRows, *, whole: bool) -> None:
        count, positions = seats.shape[0], state[seats, LENGTH] - 1
        pages = state[seats, PAGES + positions // page_size]
        slots = pages * page_size + positions % page_size
        live = StepRows(state[seats, TOKEN], positions, slots, positions + 1, state[seats, PAGES:])
        for target, source in zip(into, live, strict=True):
            target[:count] = source
        for target, padding in zip(into, (0, 0, SCRATCH_PAGE, 1, SCRATCH_PAGE), strict=True):
            target[count:] = padding

    def keep(self, state: Tensor, seats: Tensor, tokens: Tensor) -> None:
        state[seats, TOKEN] = tokens.clamp(min=0)
        state[seats, LENGTH] += 1


def seat_rows_for(device: torch.device) -> SeatRows:
    """The fastest SeatRows of `device`."""
    if device.type != "cuda" or find_spec("triton") is None:
        return TorchSeatRows()
    from graphpod_runtime.kernels.rows.seat_rows_triton import TritonSeatRows

    return TritonSeatRows()
