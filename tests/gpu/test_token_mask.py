"""Masks on a CUDA device do what torch's operators do, and the host never waits for them."""

from importlib import import_module
from types import ModuleType

import pytest
import torch

from graphpod_runtime.engine.forward.sampling.sampler import greedy
from graphpod_runtime.kernels.sampling.token_mask import NO_MASK, mask_by_torch, words_of

pytestmark = pytest.mark.gpu
GPU = torch.device("cuda")
NOTHING = -2


@pytest.fixture(scope="module")
def token_mask_triton() -> ModuleType:
    """The module can be imported only where torch's build has triton, which its CPU build has not."""
    return import_module("graphpod_runtime.kernels.sampling.token_mask_triton")


@pytest.mark.parametrize("vocab", [77, 4096, 49153, 151936])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_triton_masks_and_chooses_as_torch_does(token_mask_triton: ModuleType, vocab: int, dtype: torch.dtype) -> None:
    """With ties (16-bit logits have many), rows without masks, rows without a token left and rows that are not
    finite."""
    generator = torch.Generator(GPU).manual_seed(vocab)
    for batch in (1, 5, 33):
        logits = torch.randn(batch, vocab + 3, generator=generator, device=GPU).to(dtype)[:, :vocab]
        masks = max(1, batch - 2)
        which = torch.full((batch,), NO_MASK, dtype=torch.int32, device=GPU)
        rows = torch.randperm(batch, generator=generator, device=GPU)[:masks]
        logits[rows[1:2], vocab // 2] = torch.nan
        which[rows] = torch.arange(masks, dtype=torch.int32, device=GPU)
        bits = torch.randint(-(2**31), 2**31, (masks, words_of(vocab)), generator=generator, device=GPU).to(torch.int32)
        bits &= torch.randint(-(2**31), 2**31, bits.shape, generator=generator, device=GPU).to(torch.int32)
        bits[0] = 0 if batch > 1 else -1
        chosen, before = greedy(logits), logits.clone()
        found = token_mask_triton.mask_rows(logits, chosen, which, bits, NOTHING)
        wanted = mask_by_torch(logits, chosen, which, bits, NOTHING)
        assert torch.equal(logits.nan_to_num(7.0), before.nan_to_num(7.0))
        finite = chosen >= 0
        assert torch.equal(found[0][finite], wanted[0][finite])
        assert torch.equal(found[1], wanted[1])
        assert (found[1] == NOTHING).any() or batch == 1


def test_the_host_does_not_wait(token_mask_triton: ModuleType) -> None:
    logits = torch.randn(4, 1009, device=GPU)
    chosen, which = greedy(logits), torch.arange(4, dtype=torch.int32, device=GPU)
    bits = torch.full((4, words_of(1009)), -1, dtype=torch.int32, device=GPU)
    token_mask_triton.mask_rows(logits, chosen, which, bits, NOTHING)
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        _, tokens = token_mask_triton.mask_rows(logits, chosen, which, bits, NOTHING)
    finally:
        torch.cuda.set_sync_debug_mode(before)
    assert torch.equal(tokens, chosen)
