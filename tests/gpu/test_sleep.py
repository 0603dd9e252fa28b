"""Memory of a GPU goes and comes back to the addresses that CUDA graphs hold; `tests/unit` has the rest of sleep."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from graphpod_policy import KvCacheDtype, Policy, Quantization
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.sleep.problems import CannotWake
from graphpod_runtime.engine.sleep.sleeper import Sleeper, Source
from graphpod_runtime.memory.cuda_span import CudaSpan
from tests.unit.runtime.conftest import random_prompts

DEVICE = torch.device("cuda", 0)
PROMPTS = random_prompts(5)
GIB = 1 << 30
KV_BYTES = 2 * GIB


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    """Loaded before free memory is read: the first use of one takes up to 100 MB of the device for ever."""
    span = CudaSpan(GIB, DEVICE)
    span.tensor(0, GIB).fill_(7).sum().item()
    span.release()
    span.restore()


def nothing() -> None:
    """A wake and a sleep report progress to it."""


def free() -> int:
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(DEVICE)[0]


def sleeper_of(runner: Runner) -> Sleeper:
    assert isinstance(runner.sleeper, Sleeper)
    return runner.sleeper


def test_a_span_gives_its_memory_back_and_keeps_its_addresses() -> None:
    before = free()
    span = CudaSpan(GIB + 5, DEVICE)
    first, last = span.tensor(0, 16), span.tensor(GIB, 5)
    assert first.untyped_storage().data_ptr() == first.data_ptr()
    assert (int(first.sum()), int(last.sum())) == (0, 0)
    at = last.fill_(7).data_ptr()
    assert before - free() >= GIB
    span.release()
    assert before - free() < GIB // 16
    span.restore()
    assert (last.data_ptr(), last.tolist()) == (at, [0] * 5)
    assert before - free() >= GIB


def test_a_graph_that_was_captured_before_runs_after() -> None:
    span = CudaSpan(4096, DEVICE)
    weights = span.tensor(0, 4096).view(torch.float32)
    result, graph = torch.zeros(1024, device=DEVICE), torch.cuda.CUDAGraph()
    weights.fill_(3.0)
    with torch.cuda.graph(graph):
        torch.mul(weights, 2, out=result)
    span.release()
    span.restore()
    weights.fill_(5.0)
    graph.replay()
    assert result.unique().tolist() == [10.0]


def test_a_span_that_nobody_has_leaves_nothing_on_the_device() -> None:
    before = free()
    tensor = CudaSpan(GIB, DEVICE).tensor(0, 8)
    assert before - free() >= GIB, "the tensor keeps it"
    del tensor
    assert before - free() < GIB // 16


def test_a_span_that_does_not_fit_takes_nothing() -> None:
    before = free()
    with pytest.raises(torch.OutOfMemoryError):
        CudaSpan(torch.cuda.mem_get_info(DEVICE)[1] + GIB, DEVICE)
    assert before - free() < GIB // 16


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize(
    ("policies", "changes"),
    [
        ((Policy.Breakable, Policy.Full), {"dtype": "bfloat16"}),
        ((Policy.Disabled, Policy.Breakable), {"dtype": "bfloat16"}),
        (
            (Policy.Breakable, Policy.Full),
            {"dtype": "bfloat16", "quantization": Quantization.Fp8, "kv_cache_dtype": KvCacheDtype.Fp8},
        ),
    ],
)
def test_what_slept_gives_the_same_tokens_on_the_same_graphs(
    policies: tuple[Policy, Policy],
    changes: dict[str, object],
    memory: bool,
    started: Callable[..., Runner],
    wide_folder: Path,
) -> None:
    """Weights come from a copy on the host and, where that has no room, from disk."""
    runner = started(*policies, folder=wide_folder, sleep=True, kv_cache_bytes=KV_BYTES, **changes)
    sleeper, before = sleeper_of(runner), generate(runner, PROMPTS, 12)
    captures = runner.counters.value("graphpod_graph_captures_total")
    if not memory:
        sleeper.room = lambda: 0
    for _ in range(2):
        there = free()
        freed = sleeper.sleep(nothing)
        assert sleeper.source is (Source.Memory if memory else Source.Disk)
        assert freed >= KV_BYTES
        assert free() - there >= KV_BYTES
        taken = torch.ones(KV_BYTES // 4, device=DEVICE)  # others use it meanwhile
        del taken
        torch.cuda.empty_cache()
        sleeper.wake(nothing)
        assert generate(runner, PROMPTS, 12) == before
    assert runner.counters.value("graphpod_graph_captures_total") == captures


def test_it_stays_asleep_where_others_have_taken_the_memory(started: Callable[..., Runner], wide_folder: Path) -> None:
    runner = started(folder=wide_folder, sleep=True, dtype="bfloat16", kv_cache_bytes=KV_BYTES)
    sleeper, before = sleeper_of(runner), generate(runner, PROMPTS, 12)
    sleeper.sleep(nothing)
    taken = torch.empty(free() - GIB, dtype=torch.uint8, device=DEVICE)
    there = free()
    with pytest.raises(CannotWake):
        sleeper.wake(nothing)
    assert sleeper.asleep
    assert there - free() < GIB // 16
    del taken
    torch.cuda.empty_cache()
    sleeper.wake(nothing)
    assert generate(runner, PROMPTS, 12) == before


def test_new_weights_come_into_their_places(started: Callable[..., Runner], wide_folder: Path) -> None:
    runner = started(folder=wide_folder, sleep=True, reload=True, dtype="bfloat16", kv_cache_bytes=KV_BYTES)
    before = generate(runner, PROMPTS, 12)
    sleeper_of(runner).reload(nothing)
    assert generate(runner, PROMPTS, 12) == before
