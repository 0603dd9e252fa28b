"""The masking of logits."""

import torch

from graphpod_runtime.kernels.sampling.token_mask import mask_by_torch, words_of


def test_rows_lose_the_tokens_whose_bits_are_not_set_and_others_stay() -> None:
    torch.manual_seed(1)
    batch, vocab, rows = 5, 211, torch.tensor([3, 0])
    logits = torch.randn(batch, vocab)
    before = logits.clone()
    allowed = torch.rand(2, vocab) < 0.3
    bits = torch.zeros(2, words_of(vocab), dtype=torch.int64)
    for row, token in allowed.nonzero().tolist():
        bits[row, token // 32] |= 1 << token % 32
    bits = torch.where(bits >= 2**31, bits - 2**32, bits).to(torch.int32)
    masked = mask_by_torch(logits, rows, bits)
    assert torch.equal(logits, before)
    assert torch.equal(masked[[1, 2, 4]], before[[1, 2, 4]])
    for row, own in zip(rows.tolist(), allowed, strict=True):
        assert torch.equal(masked[row].isfinite(), own)
        assert torch.equal(masked[row][own], before[row][own])
