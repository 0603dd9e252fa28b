"""What goes wrong on a GPU ends as it does on the CPU; the tests of `tests/unit` run here with a GPU's engines."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from graphpod_policy import ExitCode, Phase, Policy
from graphpod_runtime.attention.sdpa import TorchAttention
from graphpod_runtime.engine import methods
from graphpod_runtime.engine.failure import StartFailure
from graphpod_runtime.engine.generate import generate
from graphpod_runtime.engine.passes import Code, PrefillPass
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.graphs.breakable import BreakableGraph, BreakArena, Rows, place
from graphpod_runtime.graphs.errors import ReplayFailed
from graphpod_runtime.models.base import Attend
from tests.unit.runtime.conftest import random_prompts
from tests.unit.runtime.engine.test_start import (  # noqa: F401
    DEGRADE,
    rules,
    test_a_failed_decode_capture_steps_down_to_breakable,
    test_a_failed_prefill_capture_degrades_to_eager_and_says_so,
    test_a_failed_self_check_steps_down_and_never_serves_the_graph,
    test_no_capture_after_ready_and_the_attempt_is_counted,
    test_out_of_memory_shortens_the_ladder_once,
    test_under_fail_the_start_ends_with_the_rules_own_code,
)
from tests.unit.runtime.graphs.test_selfcheck import (  # noqa: F401
    test_a_corrupted_break_output_is_caught,
    test_what_a_failed_check_wrote_into_the_cache_reaches_no_sequence,
)

MORE_THAN_THERE_IS = 1 << 44


def test_memory_that_the_allocator_does_not_have_shortens_the_ladder(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = PrefillPass.code

    def greedy_for_memory(self: PrefillPass, size: int) -> Code:
        code = right(self, size)

        def captured(attend: Attend) -> None:
            code(attend)
            if size > 16 and torch.cuda.is_current_stream_capturing():
                torch.empty(MORE_THAN_THERE_IS, dtype=torch.uint8, device="cuda")

        return captured

    monkeypatch.setattr(PrefillPass, "code", greedy_for_memory)
    runner = started(**DEGRADE)
    assert rules(runner) == [("LadderMemory", "prefill", "Adjusted")]
    assert runner.report.as_dict()["graph"]["prefill"]["sizes"] == {"planned": 4, "captured": 2, "failed": 2}
    assert generate(runner, random_prompts(3), 5) == generate(
        started(Policy.Disabled, Policy.Disabled), random_prompts(3), 5
    )


def test_a_transposed_attention_output_is_refused(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = TorchAttention.run
    monkeypatch.setattr(TorchAttention, "run", lambda self, *call: right(self, *call[:4]).t())
    with pytest.raises(StartFailure) as caught:
        started(Policy.Breakable, Policy.Disabled)
    assert caught.value.code is ExitCode.CaptureFailed
    assert "its first dimension must be the rows" in caught.value.message


def test_an_exception_in_a_break_says_where_and_the_graph_lives_on(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = random_prompts(3, longest=20)
    runner = started()
    expected = generate(runner, prompts, 4, ignore_eos=True)
    right = TorchAttention.run
    arena = 0

    def failing(self: TorchAttention, layer: int, q: Tensor, *others: Tensor) -> Tensor:
        if layer == 1 and q.data_ptr() == arena:
            raise RuntimeError("no kernel")
        return right(self, layer, q, *others)

    make_arena = BreakArena.__init__

    def noted(self: BreakArena, *arguments: Any) -> None:
        nonlocal arena
        make_arena(self, *arguments)
        arena = self.q.data_ptr()

    with monkeypatch.context() as broken:
        broken.setattr(TorchAttention, "run", failing)
        arena = runner._engine.capturer.breaks.q.data_ptr()
        where = "break after segment 1, layer 1: RuntimeError: no kernel"
        with pytest.raises(ReplayFailed, match=where):
            generate(runner, prompts, 4, ignore_eos=True)
        broken.setattr(BreakArena, "__init__", noted)
        with pytest.raises(StartFailure) as caught:
            started()
        assert f"model tiny, prefill size 32, {where}" in caught.value.message
    assert generate(runner, prompts, 4, ignore_eos=True) == expected


class PooledBreaks(BreakableGraph):
    """SGLang #37606 put back: the output of a break lives in the graph pool, and the break holds its address only.

    `owned` tells whether somebody else keeps its block: then the same code is right.
    """

    owned = True

    def interrupt(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = q.new_empty(self.site.size, q.shape[1] * q.shape[2])
        tensors = [q.contiguous(), k.contiguous(), v.contiguous(), out]
        self._segments[-1].end()
        self._layers.append(layer)
        self.weak: dict[int, list[Tensor]] = getattr(self, "weak", {})
        self.kept: list[Tensor] = [*getattr(self, "kept", []), *tensors[: 4 if self.owned else 3]]
        self.weak[layer] = [_alias(tensor) for tensor in tensors]
        rows = self._arena.rows(self.site.size, self.site.size)
        self._break(layer, rows, self._attend(rows.q, rows.k, rows.v, rows.out))
        shape = out.shape
        del out, tensors
        self.begin()
        # Whatever a segment writes before it reads the output of its break.
        q.new_zeros(shape)
        return self.weak[layer][3]

    def _break(self, layer: int, rows: Rows, attend: Callable[[int], Tensor]) -> None:
        q, k, v, out = self.weak[layer]
        count = rows.q.shape[0]
        place(self._attend(q[:count], k[:count], v[:count], out[:count])(layer), out[:count])
        out[count:].zero_()


def _alias(tensor: Tensor) -> Tensor:
    """The same memory, not owned."""
    storage = torch._C._construct_storage_from_data_pointer(
        tensor.data_ptr(), tensor.device, tensor.numel() * tensor.itemsize
    )
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage, 0, tensor.shape, tensor.stride())


@pytest.mark.parametrize("owned", [True, False], ids=["blocks owned", "blocks held weakly"])
def test_a_break_output_held_weakly_in_the_pool_is_caught(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch, owned: bool
) -> None:
    def pooled(code: Code, site: object, attend: object, arena: object, pool: object) -> BreakableGraph:
        graph = PooledBreaks(site, attend, arena, pool)  # type: ignore[arg-type]
        graph.owned = owned
        graph.begin()
        code(graph.interrupt)
        graph.finish()
        return graph

    monkeypatch.setattr(methods, "capture_breakable", pooled)
    if owned:
        started(Policy.Breakable, Policy.Disabled)
        return
    with pytest.raises(StartFailure) as caught:
        started(Policy.Breakable, Policy.Disabled)
    assert caught.value.code is ExitCode.SelfCheckFailed
    assert str(Phase.Prefill) in caught.value.message
