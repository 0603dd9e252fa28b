"""Paged attention and its write of keys and values are one opaque op that reads block tables and lengths from static
buffers when it runs: a captured step serves whatever batch those buffers hold. A loop over host lengths would be baked.
"""

import pytest
import torch
from torch import Tensor

from graphpod_policy import Device
from graphpod_runtime.attention.sdpa import TorchAttention
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.cache.cells import stored
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.engine.start.device import Place
from graphpod_runtime.graphs.segments.addresses import Addresses
from graphpod_runtime.graphs.segments.segment import Calls, capture
from tests.attention_inputs import attention_inputs
from tests.contracts.pools import capturing
from tests.contracts.toy import SHAPE

PAGE, PAGES, ROWS = 4, 6, 4


class Step:
    """Attention of one decode step of ROWS rows, captured over the scratch page."""

    def __init__(self, place: Place) -> None:
        self.device = place.device
        self.attention = TorchAttention(SHAPE)
        self.attention.bind(KvCache.allocate(SHAPE, 40, PAGE, torch.float32, self.device))
        for half in (self.attention.cache.keys, self.attention.cache.values):
            half.normal_()
        self.q, self.k, self.v = (torch.zeros(ROWS, heads, SHAPE.head_dim, device=self.device) for heads in (2, 1, 1))
        self.out = torch.zeros(ROWS, 2 * SHAPE.head_dim, device=self.device)
        addresses = Addresses()
        cache = {"keys": self.attention.cache.keys, "values": self.attention.cache.values}
        own = {"q": self.q, "k": self.k, "v": self.v, "out": self.out}
        for name, tensor in (cache | own | dict(self.attention.reserve(ROWS, PAGES))).items():
            addresses.register(name, tensor)
        self.pool = place.pool(addresses)

    @torch.no_grad()
    def captured(self) -> Calls:
        self.attention.plan_step(decode_of([1] * ROWS, seed=0), ROWS)
        with capturing(self.pool):
            self.pool.warm(self._run)
            return capture(self.pool.segment(), self._run)

    def _run(self) -> None:
        self.out.copy_(self.attention.run(1, self.q, self.k, self.v))

    def load(self, seed: int) -> None:
        """Other queries, keys and values."""
        generator = torch.Generator().manual_seed(seed)
        for tensor in (self.q, self.k, self.v):
            tensor.copy_(torch.randn(tensor.shape, generator=generator))


def replay(calls: Calls) -> None:
    for call in calls:
        call()


def decode_of(lengths: list[int], seed: int) -> Inputs:
    """Sequences of `lengths` tokens on random pages."""
    generator = torch.Generator().manual_seed(seed)
    tables = (torch.randperm(39, generator=generator) + 1)[: len(lengths) * PAGES].view(len(lengths), PAGES)
    last = torch.tensor(lengths) - 1
    slots = tables.gather(1, (last // PAGE)[:, None])[:, 0] * PAGE + last % PAGE
    return attention_inputs(slots, tables, last + 1, torch.arange(len(lengths) + 1))


@torch.no_grad()
def test_a_captured_step_serves_the_lengths_and_pages_of_whatever_batch_is_planned(place: Place) -> None:
    step = Step(place)
    calls, cache = step.captured(), step.attention.cache
    for seed, lengths in enumerate([[24, 1, 7, 16], [3, 9], [20, 20, 20], [1]], 1):
        step.load(seed)
        metadata, count = decode_of(lengths, seed), len(lengths)
        past = [half.clone() for half in (cache.keys, cache.values)]
        step.attention.plan(metadata)
        expected = step.attention.run(1, *(tensor[:count] for tensor in (step.q, step.k, step.v)))
        written = [half[1].clone() for half in (cache.keys, cache.values)]
        for half, values in zip((cache.keys, cache.values), past, strict=True):
            half.copy_(values)
        step.attention.plan_step(metadata, ROWS)
        replay(calls)
        assert torch.allclose(step.out[:count], expected, atol=1e-5)
        for half, values in zip((cache.keys, cache.values), written, strict=True):
            assert torch.equal(half[1, 1:], values[1:])  # the scratch page takes the padded rows


@pytest.mark.parametrize("device", [Device.Cpu], indirect=True, ids=str)
def test_the_recorder_notes_attention_as_one_call_and_the_copy_of_its_result_as_another(place: Place) -> None:
    assert len(Step(place).captured()) == 2


@torch.no_grad()
def test_a_loop_over_lengths_on_the_host_would_serve_the_lengths_of_capture(place: Place) -> None:
    """Why: the same sum over each row's own tokens, written with host lengths, does not follow the batch."""
    lengths = [3, 1, 2, 4]
    step = Step(place)

    def baked() -> None:
        for row, length in enumerate(lengths):
            step.out[row, :1].copy_(step.q[:length, 0, 0].sum())

    with capturing(step.pool):
        step.pool.warm(baked)
        calls = capture(step.pool.segment(), baked)
    step.load(1)
    lengths[:] = [4, 4, 1, 1]
    replay(calls)
    right: Tensor = torch.stack([step.q[:length, 0, 0].sum() for length in lengths])
    assert not torch.allclose(step.out[:, 0], right)


@pytest.mark.parametrize("value", [1e9, -1e9, 449.0, 1e38])
@pytest.mark.parametrize("scale", [1.0, 0.5, 2.0])
def test_an_fp8_cache_holds_the_nearest_it_can_of_what_is_too_large(place: Place, value: float, scale: float) -> None:
    """The bare conversion may give NaN, and attention over NaN is NaN for the whole sequence."""
    written = stored(torch.full((3, 2), value, device=place.device), scale, torch.float8_e4m3fn).float()
    expected = max(-448.0, min(448.0, value / scale))
    assert (written - expected).abs().max() <= abs(expected) / 16
