"""What a pod derives where its configuration says Auto: context and batch, from the model, the device and the cache."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphpod_policy import (
    Device,
    ExitCode,
    Facts,
    Features,
    GraphRequest,
    ModelFacts,
    NodeFacts,
    Phase,
    Policy,
    PrefixCache,
    limits,
    refine,
    resolve,
)
from graphpod_policy.cost.selfcheck import LONG_ROW
from graphpod_policy.start import footprint
from graphpod_policy.start.footprint import (
    CHECK_COPIES,
    CHECK_LAYERS,
    CHECK_ROOM,
    CHECKED_PAGES,
    MARGIN,
    PREFIX_TOKENS,
    cache_room,
    checked_pages,
    decode_scratch_bytes,
    kv_tokens,
    most_pages,
)
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start import starter
from graphpod_runtime.engine.start.device import Host
from tests.unit.runtime.conftest import engine_config

POSITIONS = 512
"""Of the tiny model."""
PAGE = 4
"""Tokens of one page of the tests' engines."""
GIB = 1 << 30
PAGE_BYTES = 2 * 3 * PAGE * 3 * 16 * 4
"""Keys and values, layers, tokens, heads, their width, float32."""
PEAK = 200_000
"""Bytes of the largest eager pass, as recorded."""

AUTO = {"max_model_len": None, "max_batch": None, "kv_cache_bytes": None}


class RecordedGpu(Host):
    """A GPU of 24 GiB as start sees it, with `available` bytes left; the recorder captures in its stead."""

    def __init__(self, available: int) -> None:
        self._available = available

    def memory_bytes(self) -> int:  # type: ignore[override]
        return 24 * GIB

    def available_bytes(self) -> int:
        return self._available

    def peak_of(self, run: Callable[[], object]) -> int:
        run()
        return PEAK


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Runner]:
    """An engine that has not started, on a GPU with so many bytes left."""

    def runner(
        folder: Path, available: int, prefill: Policy = Policy.Breakable, decode: Policy = Policy.Full, **changes: Any
    ) -> Runner:
        monkeypatch.setattr(starter, "place_of", lambda device, ranks, of_node: RecordedGpu(available))
        monkeypatch.setattr(starter, "node_of", lambda config, model, rank: NodeFacts(gpus=1))
        monkeypatch.setattr(limits, "SMALL_CONTEXT", 64)
        config = engine_config(folder, prefill, decode, device=Device.Cuda, **AUTO, **changes)
        return Runner(config, lambda report: None)

    return runner


def test_a_cpu_keeps_small_limits_within_what_the_model_knows(started: Callable[..., Runner]) -> None:
    runner = started(**AUTO)
    assert (runner.config.max_model_len, runner.config.max_batch) == (POSITIONS, limits.CPU_BATCH)
    report = runner.report.as_dict()
    assert report["limits"] == {"maxModelLen": POSITIONS, "maxBatch": 8, "auto": ["maxModelLen", "maxBatch"]}
    assert report["kv"]["tokens"] == POSITIONS * 8


def test_what_is_written_is_served_and_not_called_auto(started: Callable[..., Runner]) -> None:
    runner = started(max_model_len=128, max_batch=8)
    assert runner.report.as_dict()["limits"] == {"maxModelLen": 128, "maxBatch": 8, "auto": []}


def test_a_gpu_serves_the_models_own_length_and_the_batch_of_its_memory(
    llama_folder: Path, on_gpu: Callable[..., Runner]
) -> None:
    runner = on_gpu(llama_folder, GIB)
    runner.start()
    assert runner.report.as_dict()["limits"] == {
        "maxModelLen": POSITIONS,
        "maxBatch": 24,
        "auto": ["maxModelLen", "maxBatch"],
    }
    assert runner.report.kv_pages > (0.9 * GIB - PEAK - (64 << 20)) // PAGE_BYTES, "prefixes take what is free"


def test_without_a_prefix_cache_a_gpu_keeps_no_more_pages_than_its_batch_needs(
    llama_folder: Path, on_gpu: Callable[..., Runner]
) -> None:
    runner = on_gpu(llama_folder, GIB, Policy.Disabled, Policy.Disabled, prefix_cache=PrefixCache.Off)
    runner.start()
    assert runner.report.kv_pages == 24 * POSITIONS // PAGE


@pytest.mark.parametrize(
    ("device", "changes", "pages"),
    [
        (Device.Cuda, {}, PREFIX_TOKENS // PAGE),
        (Device.Cuda, {"prefix_cache": PrefixCache.Off}, 800),
        (Device.Cpu, {}, 800),
    ],
)
def test_prefixes_are_worth_pages_beyond_the_batch_on_a_gpu(
    llama_folder: Path, device: Device, changes: dict[str, Any], pages: int
) -> None:
    """A CPU's memory is other programs', too."""
    config = engine_config(llama_folder, Policy.Breakable, Policy.Full, device=device, **changes)
    assert most_pages(config, 8, 100) == pages
    assert most_pages(config, 8, 1 << 20) == 8 << 20


def test_sizes_that_this_gpu_has_no_use_for_have_not_failed(llama_folder: Path, on_gpu: Callable[..., Runner]) -> None:
    default = resolve(Features(device=Device.Cuda, gpus=1), GraphRequest()).phases[Phase.Decode].sizes
    runner = on_gpu(llama_folder, GIB, decode_sizes=default)
    runner.start()
    kept = [size for size in default if size <= 24]
    sizes = runner.report.as_dict()["graph"]["decode"]["sizes"]
    assert sizes == {"planned": len(default), "captured": len(kept), "failed": 0}


def test_a_cache_too_small_for_one_whole_context_serves_the_longest_that_fits(
    llama_folder: Path, on_gpu: Callable[..., Runner]
) -> None:
    runner = on_gpu(llama_folder, 600_000, Policy.Disabled, Policy.Disabled)
    runner.start()
    kv_tokens = runner.report.kv_pages * PAGE
    assert 64 <= kv_tokens < POSITIONS
    assert runner.config.max_model_len == kv_tokens
    assert runner.report.as_dict()["limits"]["maxModelLen"] == kv_tokens
    prompt = [5 + index % 100 for index in range(kv_tokens - 4)]
    assert len(generate(runner, [prompt], 4)[0]) == 4


def test_without_graphs_no_room_is_kept_for_their_self_check(llama_folder: Path, on_gpu: Callable[..., Runner]) -> None:
    runner = on_gpu(llama_folder, 600_000, Policy.Disabled, Policy.Disabled)
    runner.start()
    assert runner.report.kv_pages == (int(600_000 * (1 - MARGIN)) - PEAK) // PAGE_BYTES


def test_the_estimate_of_a_cache_leaves_room_for_what_our_decode_kernel_keeps(llama_folder: Path) -> None:
    """Of 256 rows of an 8B model 67 MB of sums alone; nothing where torch decodes."""
    model = ModelFacts("Qwen3ForCausalLM", 36, 4096, 12288, 32, 8, 128, 151936, max_position=40960)
    here = Facts(model=model, gpu_memory_bytes=140 * GIB)
    old = replace(here, reads_whole_tables=True)
    kept = decode_scratch_bytes(256, model, here, Device.Cuda)
    assert kept == 4 * 256 * (32 * 16 * (128 + 2) + 8)
    assert decode_scratch_bytes(256, model, old, Device.Cuda) == 0
    assert decode_scratch_bytes(256, model, here, Device.Cpu) == 0


def test_a_gpu_estimated_without_what_decode_keeps_would_promise_that_many_tokens_more(
    llama_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ModelFacts("Qwen3ForCausalLM", 36, 4096, 12288, 32, 8, 128, 151936, max_position=40960)
    known = Facts(model=model, gpu_memory_bytes=140 * GIB)
    config = engine_config(llama_folder, Policy.Breakable, Policy.Full, device=Device.Cuda, **AUTO)
    plan = refine(config.resolved(), known)
    right = kv_tokens(config, plan, known, 100 * GIB)
    monkeypatch.setattr(footprint, "decode_scratch_bytes", lambda *_: 0)
    promised = kv_tokens(config, plan, known, 100 * GIB)
    assert right is not None
    assert promised is not None
    token = footprint.page_bytes(config, model) // config.page_size
    kept = decode_scratch_bytes(256, model, known, Device.Cuda) * (1 - MARGIN)
    assert abs((promised - right) * token - kept) <= 2 * config.page_size * token


@pytest.mark.parametrize(
    ("largest", "pages"),
    [
        ({}, 0),
        ({Phase.Prefill: 32}, 32 // PAGE + 2),
        ({Phase.Decode: 8}, 8 * (CHECKED_PAGES - 1) + 128 // PAGE),
        ({Phase.Decode: 64}, 64 * CHECKED_PAGES),
        ({Phase.Prefill: 256, Phase.Decode: 8}, 256 // PAGE + 2),
    ],
)
def test_the_self_check_takes_what_its_largest_graphs_need(
    llama_folder: Path, largest: dict[Phase, int], pages: int
) -> None:
    config = engine_config(llama_folder, Policy.Breakable, Policy.Full, device=Device.Cuda)
    assert checked_pages(config, largest) == pages
    assert checked_pages(engine_config(llama_folder, Policy.Breakable, Policy.Full), largest) == 0
    longer = replace(config, max_model_len=None)
    long_row = LONG_ROW[Device.Cuda] // PAGE if Phase.Decode in largest else 0
    assert checked_pages(longer, largest) >= long_row
    # The shortest cache goes before the check, in the engine and in explain's estimate; never before the margin.
    free = 400 * PAGE_BYTES
    plain = int(free * (1 - MARGIN))
    assert cache_room(config, {Phase.Decode: 1000}, free, 0, 3, PAGE_BYTES) == int(free / (1 + CHECK_COPIES))
    # What the check keeps it keeps in the cache, where that has twice its pages; the margin holds the rest.
    few = {Phase.Decode: 4}
    assert checked_pages(config, few) * CHECK_ROOM < plain // PAGE_BYTES
    assert cache_room(config, few, free, 0, 3, PAGE_BYTES) == plain
    some = {Phase.Decode: 36}
    needed = checked_pages(config, some) * PAGE_BYTES
    assert CHECK_COPIES * needed > free - plain > CHECK_LAYERS * needed
    assert cache_room(config, some, free, 0, 3, PAGE_BYTES) == plain
    more = {Phase.Decode: 50}
    needed = checked_pages(config, more) * PAGE_BYTES
    assert cache_room(config, more, free, 0, 3, PAGE_BYTES) == int(free / (1 + CHECK_COPIES))
    assert cache_room(config, {Phase.Decode: 1000}, free, 0, 1000, PAGE_BYTES) == plain
    assert cache_room(config, {}, free, PAGE_BYTES, 3, PAGE_BYTES) == plain - PAGE_BYTES


def test_a_cache_too_small_for_any_useful_context_ends_the_start(
    llama_folder: Path, on_gpu: Callable[..., Runner]
) -> None:
    with pytest.raises(
        StartFailure, match=r"one sequence of spec.engine.maxModelLen 64 needs 72.0 KiB; use a larger GPU"
    ) as caught:
        on_gpu(llama_folder, 150_000, Policy.Disabled, Policy.Disabled).start()
    assert caught.value.code is ExitCode.KvCacheTooSmall
