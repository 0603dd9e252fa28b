"""What processors do to logits, all rows at once and without waiting for a device.

Every function changes `work` [rows, vocab], single precision, in place. What it does to a row does not depend on the
other rows: sums of a place have one part that is not 0, so their order does not matter, and counts are whole numbers.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Penalties(NamedTuple):
    """Of each row, float32 [rows]; 1, 0 and 0 change nothing. What no row uses is not computed."""

    repetition: Tensor
    frequency: Tensor
    presence: Tensor
    repeats: bool
    """Whether any repetition penalty is not 1,"""
    counts: bool
    """and whether any of the others is not 0."""


class Written(NamedTuple):
    """What rows have been written so far: `ids` [rows, tokens], of which the first `lengths` [rows] are tokens of the
    row, those before `prompts` [rows] of its prompt."""

    ids: Tensor
    lengths: Tensor
    prompts: Tensor


def add_(work: Tensor, rows: Tensor, tokens: Tensor, amounts: Tensor) -> None:
    """Adds amounts [n], float32, to the logits of `tokens` [n] of `rows` [n]. Of amounts for one place at most one may
    be other than 0 and -inf."""
    work.view(-1).index_add_(0, rows * work.shape[1] + tokens, amounts)


def keep_only_(work: Tensor, rows: Tensor, owners: Tensor, tokens: Tensor) -> None:
    """Masks all of `rows` [n] but `tokens` [m] of the row rows[owners], each named once."""
    kept = work[rows]
    places = owners * work.shape[1] + tokens
    only = torch.full_like(kept, -torch.inf)
    only.view(-1).index_copy_(0, places, kept.view(-1)[places])
    work.index_copy_(0, rows, only)


def mask_where_(work: Tensor, rows: Tensor, tokens: Tensor, masked: Tensor) -> None:
    """Masks `tokens` [n] of `rows` [n] where masked [n], bool, says so."""
    amounts = torch.zeros_like(masked, dtype=work.dtype).masked_fill_(masked, -torch.inf)
    add_(work, rows, tokens, amounts)


def penalise_(work: Tensor, written: Written, penalties: Penalties) -> None:
    """Repetition, then frequency and presence, as vLLM has them: repetition over prompt and answer, the others over
    the answer."""
    rows, vocab = work.shape
    columns = torch.arange(written.ids.shape[1], device=work.device)[None]
    inside = columns < written.lengths[:, None]
    if penalties.repeats:
        # Behind the vocabulary there is room for what is not a token of the row.
        seen = torch.zeros(rows, vocab + 1, dtype=torch.bool, device=work.device)
        seen.scatter_(1, written.ids.masked_fill(~inside, vocab), True)
        by = penalties.repetition[:, None]
        torch.where(seen[:, :vocab], torch.where(work > 0, work / by, work * by), work, out=work)
    if penalties.counts:
        answer = inside & (columns >= written.prompts[:, None])
        places = written.ids.masked_fill(~answer, vocab)
        counts = torch.zeros(rows, vocab + 1, dtype=torch.int32, device=work.device)
        counts.scatter_add_(1, places, torch.ones_like(places, dtype=torch.int32))
        often = counts[:, :vocab]
        work -= penalties.frequency[:, None] * often
        work -= penalties.presence[:, None] * (often > 0)
