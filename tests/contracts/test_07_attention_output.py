"""What attention returns in a break has the real rows as its first dimension and fills the slot; anything else raises.
The same number of elements with its axes swapped would be silent corruption.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graphpod_policy import ExitCode, Policy
from graphpod_runtime.attention.sdpa import TorchAttention
from graphpod_runtime.base.errors import CaptureFailed, ReplayFailed
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start.device import Place
from graphpod_runtime.graphs.break_arena import put_result
from tests.contracts.toy import Toy, attention, values

REFUSED = "its first dimension must be the rows"


@pytest.mark.parametrize("rows", [(6, 2, 4), (6, 8)], ids=["heads apart", "flat"])
def test_a_result_of_the_real_rows_is_copied_to_its_slot(place: Place, rows: tuple[int, ...]) -> None:
    result = torch.arange(48.0, device=place.device).view(rows)
    out = torch.full((6, 8), torch.nan, device=place.device)
    put_result(result, out)
    assert torch.equal(out, result.view(6, 8))


@pytest.mark.parametrize("shape", [(8, 6), (4, 12), (48,), (6, 7), (7, 8), (1, 6, 8)])
def test_a_result_of_another_shape_is_refused_however_many_elements_it_has(
    place: Place, shape: tuple[int, ...]
) -> None:
    out = torch.zeros(6, 8, device=place.device)
    with pytest.raises(ValueError, match=REFUSED):
        put_result(torch.ones(shape, device=place.device), out)
    assert not out.any()


def test_the_slot_itself_turned_around_is_refused(place: Place) -> None:
    """As many rows as a row is wide: no shape tells, but no copy can put it right either."""
    out = torch.arange(64.0, device=place.device).view(8, 8)
    with pytest.raises(RuntimeError, match="single memory location"):
        put_result(out.t(), out)


def test_a_break_that_returns_its_result_transposed_is_refused_at_capture(place: Place) -> None:
    toy = Toy(place, lambda layer, q, k, v, out: attention(layer, q, k, v, out).t())
    with pytest.raises(CaptureFailed, match=r"model toy, prefill size 16, break after segment 0, layer 0.*\[8, 16\]"):
        toy.capture(16)


def test_a_break_that_returns_its_result_transposed_only_later_is_refused_at_replay(place: Place) -> None:
    toy = Toy(place)
    graph = toy.capture(16)
    toy.attend = lambda layer, q, k, v, out: attention(layer, q, k, v, out).t()
    with pytest.raises(ReplayFailed, match=REFUSED):
        toy.replay(graph, values(13, 1))


@pytest.mark.parametrize("policies", [(Policy.Breakable, Policy.Disabled), (Policy.Disabled, Policy.Breakable)])
def test_an_engine_whose_attention_is_transposed_does_not_start(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch, policies: tuple[Policy, Policy]
) -> None:
    right = TorchAttention.run
    monkeypatch.setattr(TorchAttention, "run", lambda self, *call: right(self, *call[:4]).t())
    # On a GPU the breaks of decode call a kernel that is not turned around.
    monkeypatch.setattr(TorchAttention, "over", lambda self, q, k, v, out: lambda layer: self.run(layer, q, k, v, out))
    with pytest.raises(StartFailure) as caught:
        started(*policies)
    assert caught.value.code is ExitCode.CaptureFailed
    assert REFUSED in caught.value.message


def test_an_engine_whose_attention_turns_its_output_while_it_serves_fails_that_pass(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = started(Policy.Breakable, Policy.Breakable)
    right: Callable[..., Tensor] = TorchAttention.run
    monkeypatch.setattr(TorchAttention, "run", lambda self, *call: right(self, *call[:4]).t())
    with pytest.raises(ReplayFailed, match="model tiny, prefill size 4, break after segment 0, layer 0"):
        generate(runner, [[5, 6, 7]], 2)
