"""One trace for every size, cut at attention; what is the same is one piece; what cannot be traced is told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphpod_policy import CompileMode, OnCaptureFailure, Phase, Policy
from graphpod_runtime.base.errors import CaptureFailed
from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.base.opaque_call import OpaqueCall
from graphpod_runtime.compiled.cache import CompileCache, Compiled
from graphpod_runtime.compiled.cache_folder import FOLDER
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.graphs.breaks import break_point
from graphpod_runtime.graphs.piecewise.compilation import PiecewiseCompilation
from graphpod_runtime.graphs.piecewise.store import SplitGraphStore
from graphpod_runtime.models.decoder import DecoderBody
from tests.unit.runtime.conftest import random_prompts, write_llama

EVERY = (1, 2, 3, 4, 7, 8, 16, 31, 32)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for traces and compiled pieces."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "compiled"))
    return tmp_path / "compiled"


@pytest.mark.usefixtures("cache")
def test_one_trace_and_three_pieces_serve_a_whole_ladder_down_to_one_token(started: Callable[..., Runner]) -> None:
    prompts = random_prompts(12)
    expected = generate(started(Policy.Disabled, Policy.Disabled), prompts, 8, ignore_eos=True)
    runner = started(Policy.Piecewise, Policy.Full, prefill_sizes=EVERY)
    traced = runner._engine.capturer.piecewise
    assert (traced.traces, traced.pieces) == (1, 3), "before the first layer's attention, between two, after the last"
    assert generate(runner, prompts, 8, ignore_eos=True) == expected
    assert traced.traces == 1
    report = runner.report.as_dict()["graph"]["prefill"]
    assert report["effective"] == "Piecewise"
    assert report["sizes"] == {"planned": 9, "captured": 9, "failed": 0}
    assert report["segments"] == 3 + 1
    assert report["selfCheck"] == "Passed"
    assert runner.counters.value("graphpod_graph_fallbacks_total") == 0
    assert runner.counters.value("graphpod_eager_passes_total") == 0
    replays = {"phase": "prefill", "policy": "Piecewise", "backend": "Recorder"}
    assert runner.counters.value("graphpod_graph_replays_total", **replays) > 0


@pytest.mark.usefixtures("cache")
def test_a_ladder_that_is_captured_again_is_not_traced_again(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHPOD_FAULT", "capture-oom:prefill:8")
    runner = started(Policy.Piecewise, on_capture_failure=OnCaptureFailure.Degrade)
    assert runner.report.phases[Phase.Prefill].effective is Policy.Disabled
    assert runner.counters.value("graphpod_graph_captures_total", phase="prefill", result="error") == 2
    assert runner._engine.capturer.piecewise.traces == 1


def test_a_body_that_cannot_be_traced_degrades_and_says_why(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = DecoderBody.forward

    def choosy(self: DecoderBody, hidden: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        if hidden.sum() > 1e30:
            hidden = hidden * 2
        return right(self, hidden, positions, attend)

    monkeypatch.setattr(DecoderBody, "forward", choosy)
    runner = started(Policy.Piecewise, on_capture_failure=OnCaptureFailure.Degrade)
    (told,) = (
        entry
        for entry in runner.report.as_dict()["decisions"]
        if entry["phase"] == "prefill" and entry["stage"] == "Engine"
    )
    assert "model tiny, prefill: the model's body cannot be traced for any number of tokens" in told["because"]
    assert runner.report.as_dict()["graph"]["prefill"]["effective"] == "Disabled"


def test_the_next_start_finds_the_trace_and_one_of_another_model_does_not(
    started: Callable[..., Runner], cache: Path, tmp_path: Path
) -> None:
    prompts = random_prompts(6)
    first = started(Policy.Piecewise)
    expected = generate(first, prompts, 6, ignore_eos=True)
    second = started(Policy.Piecewise)
    assert [runner._engine.capturer.piecewise.traces for runner in (first, second)] == [1, 0]
    assert generate(second, prompts, 6, ignore_eos=True) == expected
    other = started(Policy.Piecewise, folder=write_llama(tmp_path / "other", heads=6))
    assert other._engine.capturer.piecewise.traces == 1
    assert len(list(cache.iterdir())) == 2


def test_a_trace_is_not_used_for_a_model_that_differs_by_a_number_alone(
    started: Callable[..., Runner], cache: Path, tmp_path: Path
) -> None:
    """Shapes, names and code are the same; the epsilon of the norms is a constant in the trace."""
    started(Policy.Piecewise)
    other = write_llama(tmp_path / "other", rms_norm_eps=0.03)
    prompts = random_prompts(6)
    expected = generate(started(Policy.Disabled, Policy.Disabled, folder=other), prompts, 6, ignore_eos=True)
    runner = started(Policy.Piecewise, folder=other)
    assert runner._engine.capturer.piecewise.traces == 1
    assert generate(runner, prompts, 6, ignore_eos=True) == expected
    assert len(list(cache.iterdir())) == 2


def test_a_kept_trace_that_is_not_whole_is_passed_over(started: Callable[..., Runner], cache: Path) -> None:
    started(Policy.Piecewise)
    (entry,) = cache.iterdir()
    entry.write_bytes(entry.read_bytes()[:-1])
    assert started(Policy.Piecewise)._engine.capturer.piecewise.traces == 1


@torch.no_grad()
def test_a_body_whose_code_differs_by_a_constant_has_a_trace_of_its_own(tmp_path: Path) -> None:
    class Twice(Toy):
        def forward(self, hidden: Tensor, positions: Tensor, attend: Attend) -> Any:
            return super().forward(hidden * 2, positions, attend)

    class Thrice(Toy):
        def forward(self, hidden: Tensor, positions: Tensor, attend: Attend) -> Any:
            return super().forward(hidden * 3, positions, attend)

    Twice.__qualname__ = Thrice.__qualname__ = "Times"
    store = SplitGraphStore(tmp_path, torch.device("cpu"), "toy")
    for body, traces in ((Twice(), 1), (Thrice(), 1), (Twice(), 0)):
        traced = PiecewiseCompilation(body, torch.zeros(0, 8), store=store)
        assert same(body, traced)
        assert traced.traces == traces


def test_a_folder_that_cannot_be_written_keeps_nothing_and_stops_nothing(
    started: Callable[..., Runner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(FOLDER, str(tmp_path / "file" / "compiled"))
    assert started(Policy.Piecewise).report.phases[Phase.Prefill].effective is Policy.Piecewise


def test_compiled_pieces_are_compiled_once_each_and_are_what_graphs_run(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[int] = []
    calls: list[int] = []

    class Noted(CompileCache):
        """Of each piece: how many compilations it took, and the rows of its calls."""

        def code(self, name: str, *arguments: Any) -> Any:
            before = self.compiles
            code = super().code(name, *arguments)
            if name != Compiled.Piece:
                return code
            compiled.append(self.compiles - before)

            def called(*tensors: Any) -> Any:
                calls.append(tensors[0].shape[0])
                return code(*tensors)

            return called

    monkeypatch.setattr("graphpod_runtime.engine.start.starter.CompileCache", Noted)
    prompts = random_prompts(8)
    expected = generate(started(Policy.Disabled, Policy.Disabled), prompts, 8, ignore_eos=True)
    for most in (1, 0):
        compiled.clear()
        runner = started(Policy.Piecewise, Policy.Disabled, prefill_sizes=EVERY, compile=CompileMode.Inductor)
        assert len(compiled) == 3
        assert max(compiled) <= most, "once, and never again in a later start"
        assert calls, "the compiled code runs at capture"
        calls.clear()
        assert generate(runner, prompts, 8, ignore_eos=True) == expected
        assert calls, "and at replay"
        assert runner.counters.value("graphpod_graph_fallbacks_total", phase="prefill") == 0


class Toy(nn.Module):
    """Two layers over hidden states of width 8, each given to it as a function of (x, attended)."""

    def __init__(self, *layers: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.layers = layers
        self.weight = nn.Parameter(torch.randn(8, 8, generator=torch.Generator().manual_seed(1)), requires_grad=False)

    def forward(self, hidden: Tensor, positions: Tensor, attend: Attend) -> Any:
        for index, layer in enumerate(self.layers):
            heads = (hidden @ self.weight).view(hidden.shape[0], 2, 4)
            hidden = layer(hidden, attend(index, heads, heads, heads * 2))
        return hidden


def chained(body: nn.Module) -> PiecewiseCompilation:
    return PiecewiseCompilation(body, torch.zeros(0, 8))


def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q.cumsum(0) + k * v + layer).flatten(1)


def same(body: nn.Module, traced: PiecewiseCompilation) -> bool:
    """Whether the chain computes what the body computes, for many sizes."""
    generator = torch.Generator().manual_seed(2)
    for rows in EVERY:
        given = torch.randn(rows, 8, generator=generator), torch.arange(rows)
        expected, got = body(*given, attention), traced.body(*given, attention)
        leaves = torch.utils._pytree.tree_leaves
        assert torch.utils._pytree.tree_structure(got) == torch.utils._pytree.tree_structure(expected)
        if not all(torch.equal(*pair) for pair in zip(leaves(got), leaves(expected), strict=True)):
            return False
    return True


@torch.no_grad()
def test_layers_that_say_the_same_share_a_piece_and_others_do_not() -> None:
    def plus(x: Tensor, attended: Tensor) -> Tensor:
        return x + attended

    def half(x: Tensor, attended: Tensor) -> Tensor:
        return x + 0.5 * attended

    alike, unlike = Toy(plus, plus, plus, plus), Toy(plus, plus, half, plus)
    for body, pieces in ((alike, 3), (unlike, 4)):
        traced = chained(body)
        assert same(body, traced)
        assert (traced.traces, traced.pieces) == (1, pieces)


@torch.no_grad()
def test_a_trace_sees_the_code_that_was_compiled_not_what_was_made_of_it() -> None:
    def never(x: Tensor, attended: Tensor) -> Tensor:
        raise AssertionError("compiled code stands for itself in a recording, not in a trace")

    def plus(x: Tensor, attended: Tensor) -> Tensor:
        return x + attended

    traced = chained(Toy(OpaqueCall(never, plus)))
    given = torch.ones(3, 8), torch.arange(3)
    assert torch.equal(traced.body(*given, attention), Toy(plus)(*given, attention))


@torch.no_grad()
def test_a_body_may_return_a_tree_with_an_argument_and_a_value_of_an_earlier_piece_in_it() -> None:
    class WithStates(Toy):
        def forward(self, hidden: Tensor, positions: Tensor, attend: Attend) -> Any:
            first = hidden * 3
            return {"last": super().forward(hidden, positions, attend), "others": (first, [positions, first + 1])}

    body = WithStates(lambda x, attended: x - attended)
    assert same(body, chained(body))


@torch.no_grad()
def test_a_size_computed_before_a_break_is_computed_again_after_it() -> None:
    class WithSizes(Toy):
        def forward(self, hidden: Tensor, positions: Tensor, attend: Attend) -> Any:
            twice = hidden.shape[0] * 2
            attended = attend(0, *(hidden.view(-1, 2, 4),) * 3)
            return attended.view(twice, 4).repeat(1, 2)[: hidden.shape[0]] / twice

    body = WithSizes()
    assert same(body, chained(body))


@torch.no_grad()
def test_a_tensor_that_is_no_member_of_the_body_is_refused() -> None:
    free = torch.ones(8)
    with pytest.raises(CaptureFailed, match=r"reads a tensor \[8\] that is neither .* make it a registered buffer"):
        chained(Toy(lambda x, attended: x + attended * free)).body  # noqa: B018


@torch.no_grad()
def test_a_break_point_is_refused_by_name_since_a_trace_would_freeze_it() -> None:
    class Counting(Toy):
        passes = 0

        def forward(self, hidden: Tensor, positions: Tensor, attend: Attend) -> Any:
            return mixed(0, super().forward(hidden, positions, attend))

    def mixed_with_the_pass(layer: int, x: Tensor) -> Tensor:
        Counting.passes += 1
        return x * Counting.passes

    mixed = break_point(mixed_with_the_pass)
    with pytest.raises(CaptureFailed, match="the break point mixed_with_the_pass, which a trace cannot hold"):
        chained(Counting(lambda x, attended: x + attended)).body  # noqa: B018
    assert Counting.passes == 0


@torch.no_grad()
@pytest.mark.parametrize("other", [None, 3, torch.ones(8)])
def test_a_result_that_is_no_tensor_of_the_bodys_is_refused(other: object) -> None:
    class WithOther(Toy):
        def forward(self, hidden: Tensor, positions: Tensor, attend: Attend) -> Any:
            return super().forward(hidden, positions, attend), other

    with pytest.raises(CaptureFailed, match=r"returns .*, which is no tensor that it makes, is given or has"):
        chained(WithOther(lambda x, attended: x + attended)).body  # noqa: B018


@torch.no_grad()
def test_a_trace_forgets_no_value_too_early_and_none_too_late() -> None:
    """Every value that no later step reads is free when the step that read it last begins."""
    traced = chained(Toy(*[lambda x, attended: x + attended] * 3))
    alive: list[int] = []
    made: list[Tensor] = []

    def counting(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        import weakref

        made.append(weakref.ref(q))  # type: ignore[arg-type]
        del q, k
        alive.append(sum(reference() is not None for reference in made))
        return v.flatten(1)

    traced.body(torch.zeros(4, 8), torch.arange(4), counting)
    assert max(alive) <= 1, "only the call's own"
