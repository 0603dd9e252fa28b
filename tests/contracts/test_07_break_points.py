"""Any call can be a break point, not attention alone: its result may be nested, lies outside the pool, has the rows as
its first dimension wherever it holds a tensor, and whoever fails in it is named.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from graphpod_policy import Device
from graphpod_runtime.base.errors import CaptureFailed, CaptureOutOfMemory, ReplayFailed
from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.engine.start.device import Place
from graphpod_runtime.graphs.breakable import capture_breakable
from graphpod_runtime.graphs.breaks import BreakPoint, Narrowed, break_point, surrounded
from graphpod_runtime.graphs.capture_errors import CaptureSite
from graphpod_runtime.graphs.captured_graphs import BreakableGraph
from graphpod_runtime.graphs.full import capture_full
from tests.contracts.pools import capturing
from tests.contracts.toy import Toy, attention, breaks, values

LAYERS = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Mixed:
    """What the break point of these tests returns."""

    x: Tensor
    more: dict[str, Any]


def mixing(layer: int, x: Tensor, gate: Tensor) -> Mixed:
    """Rows see each other, so a padded or a stale row changes the others. All of it is fresh."""
    return Mixed(x - x.mean(0) + layer, {"pair": (gate.sum(0) + gate, x.argmax(1)), "label": "mixed"})


class Mixer(Toy):
    """A toy whose layers call a break point of `function` instead of attention."""

    def __init__(self, place: Place, function: Callable[..., Any] = mixing) -> None:
        super().__init__(place)
        self.function = function
        self.point: BreakPoint = break_point(lambda *call: self.function(*call))
        with torch.no_grad(), surrounded(self.arena.others):
            self.code(2)(None)  # type: ignore[arg-type]
        for name, tensor in self.arena.others.tensors().items():
            self.addresses.register(name, tensor)

    def code(self, size: int) -> Callable[[Attend], None]:
        def captured(attend: Attend) -> None:
            x = self.hidden[:size]
            for layer in range(LAYERS):
                heads = x @ self.qkv
                mixed = self.point(layer, heads[:, :8], heads[:, 8:])
                gate, best = mixed.more["pair"]
                x = x + (mixed.x * gate) @ self.out + best[:, None]
            self.result[:size].copy_(x)

        return captured

    @torch.no_grad()
    def eager(self, size: int, value: Tensor) -> Tensor:
        self.load(size, value)
        with surrounded(Narrowed(size, value.shape[0])):
            self.code(size)(None)  # type: ignore[arg-type]
        return self.result[: value.shape[0]].clone()


def test_interleaved_sizes_replay_a_nested_result(place: Place) -> None:
    mixer = Mixer(place)
    graphs = {size: mixer.capture(size) for size in (16, 8, 4)}
    assert all(graph.segments == LAYERS + 1 for graph in graphs.values())
    for seed, (size, count) in enumerate([(16, 16), (4, 3), (8, 8), (16, 9), (8, 5), (4, 4), (16, 13)]):
        value = values(count, seed)
        assert torch.equal(mixer.replay(graphs[size], value), mixer.eager(size, value))


def test_what_crosses_a_break_lies_outside_the_pool_and_is_shared_by_all_sizes(place: Place) -> None:
    mixer = Mixer(place)
    before = {name: tensor.data_ptr() for name, tensor in mixer.arena.others.tensors().items()}
    assert len(before) == 2 + 3  # x and gate; x, gate, best
    assert all(tensor.shape[0] == 16 for tensor in mixer.arena.others.tensors().values())
    for size in (16, 8, 4):
        mixer.capture(size)
    assert {name: tensor.data_ptr() for name, tensor in mixer.arena.others.tensors().items()} == before


def test_a_break_point_sees_real_rows_only_and_its_padded_tail_is_zero(place: Place) -> None:
    mixer = Mixer(place)
    graph = mixer.capture(8)
    seen: list[int] = []

    def watching(layer: int, x: Tensor, gate: Tensor) -> Mixed:
        seen.append(x.shape[0])
        return mixing(layer, x, gate)

    mixer.function = watching
    results = list(mixer.arena.others.tensors().values())[2:]
    mixer.replay(graph, values(8, 1))
    assert all(result[5:8].any() for result in results), "a full replay leaves something in the rows of the tail"
    mixer.replay(graph, values(5, 1))
    assert seen == [8, 8, 8, 5, 5, 5]
    assert not any(result[5:8].any() for result in results)


def test_outside_of_a_capture_a_break_point_is_its_function(place: Place) -> None:
    x = values(4, 1)
    assert torch.equal(Mixer(place).point(2, x, x).x, mixing(2, x, x).x)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda mixed: dataclasses.replace(mixed, x=mixed.x.t().contiguous()), "the first dimension of every tensor"),
        (lambda mixed: dataclasses.replace(mixed, x=mixed.x.double()), "float64 where"),
        (lambda mixed: (mixed.x, mixed.more), "was captured for"),
        (lambda mixed: dataclasses.replace(mixed, more=mixed.more | {"label": "other"}), "was captured for"),
    ],
    ids=["transposed", "another type", "another nesting", "another value beside tensors"],
)
def test_a_result_unlike_that_of_capture_is_refused(place: Place, wrong: Callable[[Mixed], Any], words: str) -> None:
    mixer = Mixer(place)
    graph = mixer.capture(8)
    mixer.function = lambda *call: wrong(mixing(*call))
    with pytest.raises(ReplayFailed, match=rf"model toy, prefill size 8, break after segment 0, layer 0 .*{words}"):
        mixer.replay(graph, values(5, 1))
    mixer.function = mixing
    assert torch.equal(mixer.replay(graph, values(6, 1)), mixer.eager(8, values(6, 1)))


@pytest.mark.parametrize(
    ("error", "kind"),
    [(RuntimeError("no kernel"), CaptureFailed), (torch.OutOfMemoryError("no room"), CaptureOutOfMemory)],
)
def test_an_error_in_a_break_point_at_capture_ends_the_capture_and_says_where(
    place: Place, error: Exception, kind: type[Exception]
) -> None:
    mixer = Mixer(place)

    def failing(layer: int, x: Tensor, gate: Tensor) -> Mixed:
        if layer == 1 and x.shape[0] == 8 and x.data_ptr() == slot.data_ptr():
            raise error
        return mixing(layer, x, gate)

    slot = next(iter(mixer.arena.others.tensors().values()))
    mixer.function = failing
    where = rf"model toy, prefill size 8, break after segment 1, layer 1 .*: {type(error).__name__}: {error}"
    with pytest.raises(kind, match=where):
        mixer.capture(8)
    mixer.function = mixing
    graph = mixer.capture(8)
    assert torch.equal(mixer.replay(graph, values(8, 1)), mixer.eager(8, values(8, 1)))


def test_a_call_that_the_rehearsal_has_not_seen_is_refused(place: Place) -> None:
    mixer = Mixer(place)

    def code(attend: Attend) -> None:
        mixer.point(0, mixer.hidden[:8, :4], mixer.hidden[:8])

    with pytest.raises(CaptureFailed, match=r"rows like \[8, 4\], \[8, 8\] in the rehearsal"):
        mixer.capture(8, code)


def test_arguments_that_are_no_rows_are_refused(place: Place) -> None:
    mixer = Mixer(place)

    def code(attend: Attend) -> None:
        mixer.point(0, mixer.hidden[:8], mixer.hidden[:4])

    with pytest.raises(CaptureFailed, match="the first dimension must be the 8 rows"):
        mixer.capture(8, code)


def test_a_full_graph_refuses_a_break_point(place: Place) -> None:
    mixer = Mixer(place)
    with capturing(mixer.pool), pytest.raises(CaptureFailed, match="a full graph cannot hold"):
        capture_full(
            mixer.code(8), CaptureSite("toy", "decode", 8), lambda *call: attention(*call, call[1]), mixer.pool
        )


def test_attention_and_other_break_points_stand_in_one_graph(place: Place) -> None:
    mixer = Mixer(place)

    def code(size: int) -> Callable[[Attend], None]:
        def captured(attend: Attend) -> None:
            heads = (mixer.hidden[:size] @ mixer.qkv).view(size, 4, 4)
            x = attend(0, heads[:, :2], heads[:, 2:3], heads[:, 3:])
            mixed = mixer.point(1, x, x)
            mixer.result[:size].copy_(mixed.x + x)

        return captured

    with capturing(mixer.pool):
        graph: BreakableGraph = capture_breakable(
            code(8), CaptureSite("toy", "prefill", 8), breaks(attention), mixer.arena, mixer.pool
        )
    got = mixer.replay(graph, values(5, 3))
    heads = (values(5, 3).to(place.device) @ mixer.qkv).view(5, 4, 4)
    x = attention(0, heads[:, :2], heads[:, 2:3], heads[:, 3:], heads)
    assert torch.allclose(got, mixing(1, x, x).x + x, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("device", [Device.Cuda], indirect=True, ids=str)
@pytest.mark.parametrize("by", ["wait_stream", "an event"])
def test_work_forked_to_another_stream_is_joined_when_its_segment_ends(place: Place, by: str) -> None:
    mixer = Mixer(place)
    side = torch.cuda.Stream()

    def code(attend: Attend) -> None:
        x = mixer.hidden[:8]
        doubled = torch.empty_like(x)
        if by == "wait_stream":
            side.wait_stream(torch.cuda.current_stream())
        else:
            torch.cuda.current_stream().record_event().wait(side)
        with torch.cuda.stream(side):
            for _ in range(100):
                torch.mul(x, 2, out=doubled)
        mixed = mixer.point(0, x, x)
        mixer.result[:8].copy_(mixed.x + doubled)

    graph = mixer.capture(8, code)
    value = values(8, 4)
    got = mixer.replay(graph, value)
    value = value.to(place.device)
    assert torch.allclose(got, mixing(0, value, value).x + 2 * value, atol=1e-6)
    assert graph.segments == 2
