"""Rows of a decode step in which a sequence has several: its latest token, and drafts of those that may follow.

Each row is a row of a plain step: a token, its position, its KV slot, and all tokens up to it to attend to. So a step
over drafts is a decode step of more rows, and rows of one sequence differ only in their lengths.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.kernels.rows.scripted_acceptance import ScriptedAcceptance
from graphpod_runtime.kernels.rows.seat_rows_contract import StepRows

TOKEN, LENGTH, ROOM, PAGES = 0, 1, 2, 3
"""Columns of a seat: the latest token, the tokens of its sequence, that one included, how many tokens may have keys and
values, and its pages from here on."""


class Places(NamedTuple):
    """Which row of a step is which token, int64 on the device. Rows of an entry lie together, in their order."""

    entries: Tensor
    """[rows]: the seat's place among the step's."""
    offsets: Tensor
    """[rows]: 0 for the latest token, n for the n-th draft."""
    rows: Tensor
    """[entries, width]: the row of each offset; behind an entry's last row, that one again."""
    drafts: Tensor
    """[entries]: rows of each, but for the first."""

    @classmethod
    def of(cls, widths: tuple[int, ...], device: torch.device) -> "Places":
        """Of entries that have so many rows each; the host does not wait for the device."""
        counts = torch.tensor(widths)
        firsts = counts.cumsum(0) - counts
        entries = torch.arange(len(widths)).repeat_interleave(counts)
        offsets = torch.arange(len(entries)) - firsts[entries]
        rows = firsts[:, None] + torch.arange(max(widths)).minimum(counts[:, None] - 1)
        return cls(*(part.to(device, non_blocking=True) for part in (entries, offsets, rows, counts - 1)))

    def along(self, nodes: Tensor) -> "Places":
        """Of each entry the rows of these offsets, int64 [entries, any]."""
        return self._replace(rows=self.rows.gather(1, nodes))


def read(
    state: Tensor, seats: Tensor, places: Places, drafts: Tensor | None, slot_tokens: Tensor, into: StepRows
) -> Tensor:
    """The rows of a step over `seats` [entries] of `state` [seats, PAGES + pages] into the first rows of `into`, the
    others as padding: one token, 0, on the scratch page. So is a draft for which a seat has no room; bool [rows]: which
    rows are real. `drafts` [entries, width - 1] follow the latest tokens. Every row's token is noted in `slot_tokens`
    [pages, page_size], where later look-ups read it.
    """
    page_size, count, own = slot_tokens.shape[1], places.entries.shape[0], state[seats]
    lengths = own[:, LENGTH][places.entries] + places.offsets
    real = (places.offsets == 0) | (lengths <= own[:, ROOM][places.entries])
    lengths = lengths.where(real, 1)
    positions = lengths - 1
    tables = own[:, PAGES:][places.entries].where(real[:, None], SCRATCH_PAGE)
    slots = tables.gather(1, (positions // page_size)[:, None])[:, 0] * page_size + positions % page_size
    latest = own[:, TOKEN, None]
    tokens = (latest if drafts is None else torch.cat((latest, drafts), 1))[places.entries, places.offsets]
    tokens = tokens.where(real, 0)
    for target, source in zip(into, (tokens, positions, slots, lengths, tables), strict=True):
        target[:count] = source
    for target, padding in zip(into, (0, 0, SCRATCH_PAGE, 1, SCRATCH_PAGE), strict=True):
        target[count:] = padding
    slot_tokens.view(-1).index_copy_(0, slots, tokens.int())
    return real


def advance(
    state: Tensor,
    seats: Tensor,
    places: Places,
    read: Tensor,
    real: Tensor,
    tokens: Tensor,
    script: ScriptedAcceptance | None = None,
) -> Tensor:
    """What a step gave: `tokens` [rows] follow those of its rows, which were `read` [rows], drafts among them. A draft
    is right when it is the token that follows the one before it; then the row of the draft counts, too. The token
    behind the last right draft is the seat's latest now; one below 0, which is none, is kept as 0. With a `script` that
    says which drafts are right, and the text goes on by them.

    int64 [entries, width + 2]: the tokens behind each row of an entry, how many of its drafts had room, and how many of
    those were right.
    """
    following, drafted = tokens[places.rows], read[places.rows][:, 1:]
    at = torch.arange(1, following.shape[1], device=tokens.device)
    verified = real[places.rows][:, 1:] & (at <= places.drafts[:, None])
    right = following[:, :-1] == drafted if script is None else script.right(seats, state[seats, LENGTH], len(at))
    accepted = (right & verified).long().cumprod(1).sum(1)
    if script is not None:
        following = torch.cat((drafted.where(at <= accepted[:, None], following[:, :-1]), following[:, -1:]), 1)
    state[seats, TOKEN] = following.gather(1, accepted[:, None])[:, 0].clamp(min=0)
    state[seats, LENGTH] += accepted + 1
    return torch.cat((following, verified.sum(1, keepdim=True), accepted[:, None]), 1)
