"""A start runs each way to choose a token once, masks of grammars among them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.yielded import NOTHING_LEFT
from graphpod_runtime.engine.start.rehearsal import sampling as rehearsed_sampling
from graphpod_runtime.engine.start.rehearsal.sampling import WAYS, rehearsed
from graphpod_runtime.kernels.sampling.token_mask import mask_by_torch, words_of


def test_a_start_masks_as_many_rows_as_a_step_has(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    masks: list[tuple[Tensor, Tensor, Tensor]] = []

    def noting(logits: Tensor, chosen: Tensor, which: Tensor, bits: Tensor, nothing: int) -> tuple[Tensor, Tensor]:
        masks.append((logits, which, bits))
        return mask_by_torch(logits, chosen, which, bits, nothing)

    monkeypatch.setattr(rehearsed_sampling, "masker_for", lambda device: noting)
    runner = started(max_batch=6)
    ((logits, which, bits),) = masks
    assert (logits.shape, which.tolist()) == ((6, runner.vocabulary), [0, 1, 2, 3, 4, 5])
    assert (bits.shape, bits.dtype) == ((6, words_of(runner.vocabulary)), torch.int32)


def test_tokens_are_drawn_from_the_logits_behind_the_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_five(logits: Tensor, chosen: Tensor, which: Tensor, bits: Tensor, nothing: int) -> tuple[Tensor, Tensor]:
        five = (bits & 0) + torch.tensor([1 << 5, 0, 0], dtype=torch.int32)
        return mask_by_torch(logits, chosen, which, five, nothing)

    monkeypatch.setattr(rehearsed_sampling, "masker_for", lambda device: only_five)
    logits, slot_tokens = torch.randn(3, 77), torch.zeros(SCRATCH_PAGE + 1, 4, dtype=torch.int32)
    drawn = rehearsed(logits, torch.full((3,), 9), slot_tokens, context=10)
    assert [tokens.tolist() for tokens in drawn] == [[5, 5, 5], [5, 5, 5], [NOTHING_LEFT] * 3]
    assert WAYS[-1].processing.allowed == [0, 1]
