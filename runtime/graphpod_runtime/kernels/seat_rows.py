"""Rows of a decode step, out of what the device keeps of sequences and back into it; on a GPU in one launch each."""

from importlib.util import find_spec

import torch
from torch import Tensor

from graphpod_runtime.kernels.seat_kernels import LENGTH, PAGES, TOKEN, SeatRows, StepRows


class TorchSeatRows:
    """SeatRows on any device."""

    def read(self, state: Tensor, seats: Tensor, page_size: int, into: StepRows) -> None:
        count, positions = seats.shape[0], state[seats, LENGTH] - 1
        pages = state[seats, PAGES + positions // page_size]
        live = StepRows(state[seats, TOKEN], positions, pages * page_size + positions % page_size)
        for target, source in zip(into, live, strict=True):
            target[:count] = source
            target[count:] = 0

    def keep(self, state: Tensor, seats: Tensor, tokens: Tensor) -> None:
        state[seats, TOKEN] = tokens.clamp(min=0)
        state[seats, LENGTH] += 1


def seat_rows_for(device: torch.device) -> SeatRows:
    """The fastest SeatRows of `device`."""
    if device.type != "cuda" or find_spec("triton") is None:
        return TorchSeatRows()
    from graphpod_runtime.kernels.seat_rows_triton import TritonSeatRows

    return TritonSeatRows()
