"""Prompt look-up: what followed where the text ended in the same tokens before, in prompt and answer alike."""

from typing import NamedTuple

import torch
from torch import Tensor

MOST_ALIKE = 4
"""Tokens that are compared: of longer agreements the latest one is as good as any."""


class Found(NamedTuple):
    """For each text: drafts [texts, count], int64, and whether any earlier place ended alike, bool [texts]. Without one
    the drafts are tokens of the text all the same: a draft is never trusted."""

    drafts: Tensor
    any: Tensor


def looked_up(texts: Tensor, lengths: Tensor, count: int) -> Found:
    """`count` drafts for each of `texts` [texts, longest], whose first `lengths` tokens count, one or more.

    The place with the longest agreement wins, up to MOST_ALIKE tokens, of equal ones the latest. Where the text ends
    before so many tokens followed, they begin again, as in a loop.
    """
    longest = texts.shape[1]
    at, last = torch.arange(longest, device=texts.device)[None], lengths[:, None] - 1
    alike = at < last
    score = torch.zeros_like(texts)
    for back in range(min(MOST_ALIKE, longest)):
        ending = texts.gather(1, (last - back).clamp(min=0))
        same = torch.zeros_like(alike)
        same[:, back:] = (texts == ending)[:, : longest - back]
        alike = alike & same & (last >= back)
        score = score + alike
    best = (score * longest + at).masked_fill(score == 0, -1).argmax(1, keepdim=True)
    period = (last - best).clamp(min=1)
    following = best + 1 + torch.arange(count, device=texts.device)[None] % period
    return Found(texts.gather(1, following.minimum(last)), (score > 0).any(1))
