"""What crosses a break lives in one arena of largest-size slots: made before any capture, outside every graph pool,
shared by all layers and sizes. No break keeps pool memory, and a result is read from memory outside the pool.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from graphpod_policy import ExitCode, Phase, Policy
from graphpod_runtime.attention.sdpa import TorchAttention
from graphpod_runtime.base.errors import CaptureFailed, ReplayFailed
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start.device import Place
from graphpod_runtime.graphs import breakable
from graphpod_runtime.graphs.break_arena import AttentionRows, BreakArena
from graphpod_runtime.graphs.captured_graphs import BreakableGraph
from tests.contracts.passes import inputs_for, replayed, uncaptured, with_a_past
from tests.contracts.pooled_breaks import OwnedBreaks, PooledBreaks
from tests.contracts.pools import owns, used_bytes
from tests.contracts.toy import SHAPE, Attention, Toy, attention, attention_in_place, breaks, values
from tests.unit.runtime.conftest import random_prompts

SIXTY_FOUR = tuple(range(1, 65))


def test_the_slots_hold_the_largest_pass_and_lie_outside_every_pool(started: Callable[..., Runner]) -> None:
    runner = started(Policy.Breakable, Policy.Breakable, prefill_chunk=32, max_batch=8)
    slots = runner._engine.capturer.breaks.tensors()
    assert {name: tensor.shape[0] for name, tensor in slots.items()} == dict.fromkeys(slots, 32)
    for graphs in runner._engine.graphs.values():
        assert not any(owns(graphs.pool, tensor) for tensor in slots.values())


def test_every_layer_and_every_size_uses_the_same_slots(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[tuple[int, ...]] = set()
    right = breakable.BreakableGraph.attend

    def watched(self: BreakableGraph, layer: int, rows: AttentionRows, attend: Any) -> None:
        seen.add(tuple(tensor.data_ptr() for tensor in rows[:4]))
        right(self, layer, rows, attend)

    monkeypatch.setattr(breakable.BreakableGraph, "attend", watched)
    runner = started(Policy.Breakable, Policy.Breakable)
    generate(runner, random_prompts(6), 3)
    slots = runner._engine.capturer.breaks
    assert seen == {(slots.q.data_ptr(), slots.k.data_ptr(), slots.v.data_ptr(), slots.out.data_ptr())}


@pytest.mark.parametrize("decode", [Policy.Breakable, Policy.Full])
def test_after_capture_no_tensor_keeps_memory_of_a_pool(started: Callable[..., Runner], decode: Policy) -> None:
    runner = started(Policy.Breakable, decode)
    for graphs in runner._engine.graphs.values():
        assert graphs.pool.pool_bytes() > 0
        assert used_bytes(graphs.pool) == 0


def test_what_is_read_after_a_replay_lies_outside_the_pool(started: Callable[..., Runner]) -> None:
    runner = started(Policy.Breakable, Policy.Full)
    for phase, graphs in runner._engine.graphs.items():
        results = graphs.replay(inputs_for(runner, phase, 4, seed=1), 4)
        assert not any(owns(graphs.pool, result) for result in results)


def test_a_result_left_in_the_pool_is_the_next_sizes_memory(place: Place) -> None:
    """Why: what a graph leaves in its pool, the next graph overwrites."""
    toy = Toy(place)
    left: dict[int, Tensor] = {}
    graphs = {}
    for size in (16, 8):

        def code(attend: Attend, size: int = size) -> None:
            left[size] = toy.hidden[:size] * 2

        graphs[size] = toy.capture(size, code)
        storage = torch._C._construct_storage_from_data_pointer(left[size].data_ptr(), toy.device, size * 8 * 4)
        left[size] = torch.empty(0, device=toy.device).set_(storage, 0, (size, 8), (8, 1))
    toy.load(16, values(16, 1))
    graphs[16].replay(16)
    result = left[16].clone()
    assert torch.equal(result.cpu(), values(16, 1) * 2)
    toy.load(8, values(8, 2))
    graphs[8].replay(8)
    assert not torch.equal(left[16], result)


@pytest.mark.parametrize("phase", list(Phase))
def test_64_sizes_captured_into_one_pool_and_replayed_interleaved_give_what_their_code_gives(
    started: Callable[..., Runner], phase: Phase
) -> None:
    policies = {Phase.Prefill: Policy.Disabled, Phase.Decode: Policy.Disabled} | {phase: Policy.Breakable}
    sizes = {f"{phase}_sizes": SIXTY_FOUR, "prefill_chunk": 64, "max_batch": 64}
    runner = with_a_past(started(*policies.values(), **sizes))
    assert runner._engine.graphs[phase].sizes == SIXTY_FOUR
    order = [size for size in SIXTY_FOUR for _ in range(2)]
    random.Random(1).shuffle(order)
    for seed, size in enumerate(order):
        inputs = inputs_for(runner, phase, max(1, size - seed % 2), seed)
        got = replayed(runner, inputs, size)
        for result, expected in zip(got, uncaptured(runner, inputs, size), strict=True):
            assert torch.equal(result, expected), f"size {size}, {inputs.count} rows"


@pytest.mark.parametrize("attend", [attention, attention_in_place])
def test_interleaved_sizes_replay_what_the_code_computes(place: Place, attend: Attention) -> None:
    toy = Toy(place, attend)
    graphs = {size: toy.capture(size) for size in (16, 8, 4)}
    assert all(graph.segments == SHAPE.layers + 1 for graph in graphs.values())
    for seed, (size, count) in enumerate([(16, 16), (4, 3), (8, 8), (16, 9), (8, 5), (4, 4), (16, 13)]):
        value = values(count, seed)
        assert torch.equal(toy.replay(graphs[size], value), toy.eager(size, value))


def test_a_capture_and_a_replay_set_attention_up_once_for_all_layers(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    right = breaks(attention)

    def counted(q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Callable[[int], Tensor]:
        made.append(len(q))
        return right(q, k, v, out)

    toy = Toy(place)
    monkeypatch.setattr("tests.contracts.toy.breaks", lambda attend: right if attend is attention else counted)
    graph = toy.capture(16)
    assert made == [16]
    toy.replay(graph, values(9, 1))
    assert made == [16, 9]


def test_attention_is_planned_while_the_device_computes_the_first_segment(place: Place) -> None:
    did: list[str] = []

    def noted(layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Tensor:
        did.append(f"layer {layer}")
        return attention(layer, q, k, v, out)

    toy = Toy(place, noted)
    graph, value = toy.capture(16), values(9, 1)
    wanted = toy.eager(16, value)
    graph.calls = [[*calls, partial(did.append, f"segment {index}")] for index, calls in enumerate(graph.calls)]
    did.clear()
    toy.load(16, value)
    graph.replay(9, lambda: did.append("plan"))
    layers = [f"{what} {index}" for index in range(SHAPE.layers) for what in ("segment", "layer")]
    assert did == [layers[0], "plan", *layers[1:], f"segment {SHAPE.layers}"]
    assert torch.equal(toy.result[:9], wanted)


def test_a_plan_that_fails_behind_the_first_segment_is_named_and_the_next_replay_is_right(place: Place) -> None:
    toy = Toy(place)
    graph, value = toy.capture(16), values(9, 1)
    wanted = toy.eager(16, value)

    def plan() -> None:
        raise ValueError("no room for a plan")

    toy.load(16, values(16, 2))
    with pytest.raises(ReplayFailed, match="size 16, before its first break: ValueError: no room for a plan"):
        graph.replay(16, plan)
    assert torch.equal(toy.replay(graph, value), wanted)


def test_a_break_sees_real_rows_only_and_its_padded_tail_is_zero(place: Place) -> None:
    seen: list[int] = []

    def watching(layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Tensor:
        seen.append(q.shape[0])
        return attention(layer, q, k, v, out)

    toy = Toy(place, watching)
    graph = toy.capture(8)
    seen.clear()
    toy.arena.out.fill_(torch.nan)
    toy.replay(graph, values(5, 1))
    assert seen == [5, 5, 5]
    assert not toy.arena.out[5:8].any()
    assert toy.arena.out[8:].isnan().all()


# SGLang #37606: breaks whose tensors are in the pool


@pytest.mark.parametrize("kind", [OwnedBreaks, PooledBreaks], ids=["blocks owned", "blocks held weakly"])
def test_break_tensors_held_weakly_in_the_pool_give_wrong_results(place: Place, kind: type[PooledBreaks]) -> None:
    toy = Toy(place)
    graphs = {size: toy.capture_as(kind, size) for size in (16, 8)}
    right = [
        torch.equal(toy.replay(graphs[size], values(size, size)), toy.eager(size, values(size, size)))
        for size in (16, 8, 16)
    ]
    assert right == [kind.owned] * 3


def test_break_tensors_held_weakly_in_the_pool_are_caught_at_start(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breakable, "BreakableCapture", PooledBreaks)
    with pytest.raises(StartFailure) as caught:
        started(Policy.Breakable, Policy.Breakable)
    assert caught.value.code is ExitCode.SelfCheckFailed
    assert str(Phase.Prefill) in caught.value.message


def test_the_same_break_tensors_pass_when_their_blocks_are_owned(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breakable, "BreakableCapture", OwnedBreaks)
    runner = started(Policy.Breakable, Policy.Breakable)
    assert runner.report.as_dict()["graph"]["prefill"]["selfCheck"] == "Passed"


# Exceptions in breaks


def test_an_exception_in_a_break_at_capture_ends_the_capture_and_says_where(place: Place) -> None:
    def failing(layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Tensor:
        if layer == 1:
            raise RuntimeError("no kernel")
        return attention(layer, q, k, v, out)

    toy = Toy(place, failing)
    where = "model toy, prefill size 8, break after segment 1, layer 1: RuntimeError: no kernel"
    with pytest.raises(CaptureFailed, match=where):
        toy.capture(8)
    toy.attend = attention
    graph = toy.capture(8)
    assert torch.equal(toy.replay(graph, values(8, 1)), toy.eager(8, values(8, 1)))


def test_an_exception_in_captured_code_ends_the_capture_and_says_where(place: Place) -> None:
    toy = Toy(place)

    def code(attend: Attend) -> None:
        attend(0, *(toy.hidden[:8].view(8, 2, 4)[:, :heads] for heads in (2, 1, 1)))
        toy.hidden @ toy.hidden

    with pytest.raises(CaptureFailed, match="model toy, prefill size 8, segment 1: RuntimeError"):
        toy.capture(8, code)
    assert used_bytes(toy.pool) == 0
    graph = toy.capture(8)
    assert torch.equal(toy.replay(graph, values(8, 1)), toy.eager(8, values(8, 1)))


def test_an_exception_in_a_break_at_replay_says_where_and_the_graph_lives_on(place: Place) -> None:
    broken = False

    def sometimes(layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Tensor:
        if broken and layer == 2:
            raise RuntimeError("page fault")
        return attention(layer, q, k, v, out)

    toy = Toy(place, sometimes)
    graph = toy.capture(8)
    broken = True
    where = "model toy, prefill size 8, break after segment 2, layer 2: RuntimeError: page fault"
    with pytest.raises(ReplayFailed, match=where):
        toy.replay(graph, values(8, 1))
    broken = False
    assert torch.equal(toy.replay(graph, values(6, 1)), toy.eager(8, values(6, 1)))


def test_an_exception_in_an_engines_break_says_where_and_the_engine_lives_on(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = random_prompts(3, longest=20)
    runner = started(Policy.Breakable, Policy.Breakable)
    expected = generate(runner, prompts, 4, ignore_eos=True)
    right = TorchAttention.run

    def failing(self: TorchAttention, layer: int, q: Tensor, *others: Tensor) -> Tensor:
        if layer == 1 and q.data_ptr() in arenas:
            raise RuntimeError("no kernel")
        return right(self, layer, q, *others)

    make = BreakArena.__init__

    def noted(self: BreakArena, *arguments: Any) -> None:
        make(self, *arguments)
        arenas.add(self.q.data_ptr())

    arenas = {runner._engine.capturer.breaks.q.data_ptr()}
    where = "break after segment 1, layer 1: RuntimeError: no kernel"
    with monkeypatch.context() as broken:
        broken.setattr(TorchAttention, "run", failing)
        broken.setattr(BreakArena, "__init__", noted)
        with pytest.raises(ReplayFailed, match=where):
            generate(runner, prompts, 4, ignore_eos=True)
        with pytest.raises(StartFailure) as caught:
            started(Policy.Breakable, Policy.Breakable)
        assert f"model tiny, prefill size 32, {where}" in caught.value.message
    assert generate(runner, prompts, 4, ignore_eos=True) == expected
