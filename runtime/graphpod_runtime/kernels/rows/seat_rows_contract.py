"""The contract of what the device keeps of sequences: a row of numbers for each seat."""

from typing import NamedTuple, Protocol

from torch import Tensor

TOKEN, LENGTH, PAGES = 0, 1, 2
"""Columns of a seat: the latest token, the tokens of its sequence, that one included, and its pages from here on."""


class StepRows(NamedTuple):
    """What a step reads of each row, int64 [rows]: static buffers. `slots` are KV slots, page · page_size + offset;
    `lengths` count the row itself; `tables` [rows, pages] are all pages of a seat."""

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    lengths: Tensor
    tables: Tensor


class SeatRows(Protocol):
    """Both act on `seats` [rows], of which every one is another row of `state` [seats, PAGES + pages], all int64."""

    def read(self, state: Tensor, seats: Tensor, page_size: int, into: StepRows, *, whole: bool) -> None:
        """The last token of each seat into the first rows of `into`. The others are rows of one token, 0, on the
        scratch page. `whole`: each table is written to its end, with scratch pages behind the others; else as far as
        its row has tokens."""

    def keep(self, state: Tensor, seats: Tensor, tokens: Tensor) -> None:
        """`tokens` [rows] are the latest now, one more each. One below 0, which is none, is kept as 0: the next step
        must be able to read it."""
