"""NaN in pages that no live sequence owns and in padded rows changes nothing. What attention reads and masks is finite:
unwritten slots of a live page, and the scratch page, which holds a large value so that who reads it is wrong for sure.
"""

from collections.abc import Callable

import pytest
import torch

from graphpod_policy import Phase, Policy
from graphpod_runtime.attention.sdpa import TorchAttention
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.engine.memory_poisoning import UNWRITTEN
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.batch import Chunk, DecodeBatch, PrefillBatch
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.engine.start.device import Place
from graphpod_runtime.engine.start.device_state import SCRATCH_VALUE
from tests.attention_inputs import attention_inputs
from tests.contracts.toy import SHAPE
from tests.unit.runtime.conftest import random_prompts

POLICIES = [
    (Policy.Disabled, Policy.Disabled),
    (Policy.Breakable, Policy.Full),
    (Policy.Breakable, Policy.Breakable),
]


@pytest.mark.parametrize("policies", POLICIES)
def test_nan_in_dead_pages_and_padded_rows_changes_no_token(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch, policies: tuple[Policy, Policy]
) -> None:
    prompts = random_prompts(10)
    clean = generate(started(*policies), prompts, 8, ignore_eos=True)
    monkeypatch.setenv("GRAPHPOD_DEBUG", "poison")
    poisoned = started(*policies)
    assert generate(poisoned, prompts, 8, ignore_eos=True) == clean
    cache = poisoned._engine.attention.cache
    assert cache.keys[:, poisoned.pages.free_pages[-1]].isnan().all(), "it was poisoned"


@pytest.mark.parametrize("policies", POLICIES)
def test_when_ready_the_scratch_page_is_large_and_finite_and_every_other_page_finite(
    started: Callable[..., Runner], policies: tuple[Policy, Policy]
) -> None:
    runner = started(*policies)
    for half in (runner._engine.attention.cache.keys, runner._engine.attention.cache.values):
        assert (half[:, SCRATCH_PAGE] == SCRATCH_VALUE).all()
        assert half.isfinite().all()


def test_serving_leaves_the_scratch_page_finite(started: Callable[..., Runner]) -> None:
    """Padded rows of a captured step write there, whatever they hold."""
    runner = started(Policy.Breakable, Policy.Full)
    generate(runner, random_prompts(5), 6, ignore_eos=True)
    cache = runner._engine.attention.cache
    assert cache.keys[:, SCRATCH_PAGE].isfinite().all()
    assert cache.values[:, SCRATCH_PAGE].isfinite().all()


@pytest.mark.parametrize(("value", "finite"), [(1000.0, True), (torch.nan, False)])
def test_an_unwritten_slot_of_a_live_page_must_be_finite(place: Place, value: float, finite: bool) -> None:
    """Why: attention gives NaN for NaN at masked positions too; on GPUs some of torch's kernels do."""
    if place.device.type == "cuda" and not finite:
        pytest.skip("which kernel torch takes depends on the GPU")
    cache = KvCache.allocate(SHAPE, 4, 4, torch.float32, place.device)
    cache.fill(torch.tensor([1, 2], device=place.device), value)
    attention = TorchAttention(SHAPE)
    attention.bind(cache)
    # Two sequences that decode their first token each, beside one another: the longer decides what is read.
    lengths = torch.tensor([1, 4])
    cache.keys[:, 2, :3] = cache.values[:, 2, :3] = 0.5
    attention.plan(attention_inputs(torch.tensor([4, 11]), torch.tensor([[1], [2]]), lengths, torch.tensor([0, 1, 2])))
    q, k, v = (torch.ones(2, heads, SHAPE.head_dim, device=place.device) for heads in (2, 1, 1))
    assert bool(attention.run(0, q, k, v).isfinite().all()) is finite


def test_poison_lies_wherever_a_pass_must_not_read(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six tokens of a sequence with three pages of four are written, on a graph of eight rows."""
    monkeypatch.setenv("GRAPHPOD_DEBUG", "poison")
    runner = started(Policy.Breakable, Policy.Full)
    cache = runner._engine.attention.cache
    sequence = Sequence("a", list(range(3, 9)), 6, 4, pages=runner.pages.take(3))
    (token,) = runner.forward(PrefillBatch((Chunk(sequence, 0, 6),))).tokens
    hidden = runner._engine.passes[Phase.Prefill].buffers.view("hidden", 8)
    assert hidden[:6].isfinite().all()
    assert hidden[6:].isnan().all(), "rows that pad the batch to its graph's size"
    sequence.tokens.append(token)
    sequence.computed = 6
    _, half, last = sequence.pages
    for cells in (cache.keys, cache.values):
        cells[:, half, 3:] = cells[:, last] = 0.0
    runner.forward(DecodeBatch((sequence,)))
    for cells in (cache.keys, cache.values):
        assert cells[:, half, :3].ne(UNWRITTEN).all()
        assert cells[:, half, 3:].eq(UNWRITTEN).all(), "slots of a live page that are masked"
        assert cells[:, last].eq(UNWRITTEN).all()
        assert cells[:, runner.pages.free_pages].isnan().all()
