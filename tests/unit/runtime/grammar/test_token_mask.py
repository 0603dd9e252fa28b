"""The masking of logits."""

import torch
from torch import Tensor

from graphpod_runtime.kernels.sampling.token_mask import NO_MASK, mask_by_torch, words_of

NOTHING = -2


def packed(allowed: Tensor) -> Tensor:
    """The masks of allowed [masks, vocab], bool."""
    bits = torch.zeros(allowed.shape[0], words_of(allowed.shape[1]), dtype=torch.int64)
    for row, token in allowed.nonzero().tolist():
        bits[row, token // 32] |= 1 << token % 32
    return torch.where(bits >= 2**31, bits - 2**32, bits).to(torch.int32)


def test_rows_lose_the_tokens_whose_bits_are_not_set_and_others_stay() -> None:
    torch.manual_seed(1)
    batch, vocab, which = 5, 211, torch.tensor([1, NO_MASK, NO_MASK, 0, NO_MASK], dtype=torch.int32)
    logits = torch.randn(batch, vocab)
    before, chosen = logits.clone(), torch.full((batch,), 7)
    allowed = torch.rand(2, vocab) < 0.3
    masked, tokens = mask_by_torch(logits, chosen, which, packed(allowed), NOTHING)
    assert torch.equal(logits, before)
    assert torch.equal(masked[[1, 2, 4]], before[[1, 2, 4]])
    assert tokens[[1, 2, 4]].tolist() == [7, 7, 7]
    for row, own in ((3, allowed[0]), (0, allowed[1])):
        assert torch.equal(masked[row].isfinite(), own)
        assert torch.equal(masked[row][own], before[row][own])
        assert tokens[row] == before[row].masked_fill(~own, -torch.inf).argmax()


def test_a_row_that_was_not_finite_stays_so_and_one_without_a_token_has_nothing() -> None:
    logits = torch.zeros(3, 40)
    logits[0, 3] = torch.nan
    allowed = torch.zeros(3, 40, dtype=torch.bool)
    allowed[2, [8, 9]] = True
    _, tokens = mask_by_torch(
        logits, torch.tensor([-1, 0, 0]), torch.arange(3, dtype=torch.int32), packed(allowed), NOTHING
    )
    assert tokens.tolist() == [-1, NOTHING, 8], "the first of equal maxima"
