"""Weights, buffers, prefill captured against one scratch page, decode captured once only to learn what it costs, those
graphs dropped, the cache sized from what is left and allocated, decode captured at its final address, every graph
checked, Ready; no capture afterwards. Prefill's breaks fetch the cache from the engine, so a later cache serves them.
"""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphpod_policy import Device, Phase, Policy, PrefixCache
from graphpod_policy.start.footprint import PREFIX_TOKENS
from graphpod_runtime.base.errors import CaptureFailed
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.engine.capture.capturer import Capturer
from graphpod_runtime.engine.capture.phase_capture import PhaseCapture
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start import starter
from graphpod_runtime.engine.start.degrade import DegradingCapture
from graphpod_runtime.engine.start.device import Place
from tests.contracts.decisions import DEGRADE
from tests.contracts.passes import inputs_for, replayed, uncaptured, with_a_past
from tests.unit.runtime.conftest import random_prompts


def test_a_start_reports_every_stage_in_order_and_every_captured_size(started: Callable[..., Runner]) -> None:
    runner = started()
    reports: list[dict[str, Any]] = runner.reports  # type: ignore[attr-defined]
    states = list(dict.fromkeys(report["state"] for report in reports))
    assert states == ["Loading", "Capturing", "SelfChecking", "Ready"]
    last = reports[-1]
    assert [stage["name"] for stage in last["stages"]] == [
        "Load",
        "Buffers",
        "PrefillCapture",
        "DecodeMeasure",
        "KvSizing",
        "DecodeCapture",
        "SelfCheck",
    ]
    captured = [report["graph"]["prefill"]["sizes"]["captured"] for report in reports]
    assert list(dict.fromkeys(captured)) == [0, 1, 2, 3, 4]
    assert last["terminal"]
    assert last["failure"] is None
    prefill, decode = last["graph"]["prefill"], last["graph"]["decode"]
    assert prefill["effective"] == "Breakable"
    assert decode["effective"] == "Full"
    assert prefill["segments"] == 3 + 1
    assert decode["segments"] == 1
    assert decode["sizes"] == {"planned": 4, "captured": 4, "failed": 0}
    assert prefill["poolBytes"] > 0
    assert last["kv"]["tokens"] == last["kv"]["pages"] * 4 > 0


def test_prefill_and_the_measured_decode_see_one_scratch_page_and_the_last_capture_the_real_cache(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Phase, int, int]] = []
    right = Capturer.capture

    def watched(self: Capturer, passing: Any, *arguments: Any) -> PhaseCapture:
        seen.append((passing.phase, self.attention.cache.pages, self.attention.cache.keys.data_ptr()))
        return right(self, passing, *arguments)

    monkeypatch.setattr(Capturer, "capture", watched)
    runner = started()
    pages = runner.report.kv_pages + 1
    assert [entry[:2] for entry in seen] == [(Phase.Prefill, 1), (Phase.Decode, 1), (Phase.Decode, pages)]
    assert seen[-1][2] == runner._engine.attention.cache.keys.data_ptr()


def test_prefill_graphs_serve_a_cache_that_came_after_them(started: Callable[..., Runner]) -> None:
    runner = started(Policy.Breakable, Policy.Disabled)
    attention, shape = runner._engine.attention, runner._engine.model.shape
    before = attention.cache
    old = before.keys.clone()
    attention.bind(KvCache.allocate(shape, before.pages, before.page_size, before.keys.dtype, before.device))
    with_a_past(runner)
    inputs = inputs_for(runner, Phase.Prefill, 13, seed=1)
    slots = inputs.slots.to(before.device)
    assert torch.equal(*(one(runner, inputs, 16)[0] for one in (replayed, uncaptured)))
    assert torch.equal(before.keys, old)
    assert attention.cache.keys.flatten(1, 2)[:, slots].abs().sum() > 0


def test_dropped_graphs_leave_no_pool(started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the measured decode ladder, and of a ladder whose capture failed, without help of a collector."""
    pools: list[weakref.ref[Any]] = []
    right = Capturer.capture
    at_allocation: list[int] = []

    def counted(self: Capturer, *arguments: Any) -> PhaseCapture:
        make = self.new_pool

        def noted() -> Any:
            pool = make()
            pools.append(weakref.ref(pool))
            return pool

        with monkeypatch.context() as making:
            making.setattr(self, "new_pool", noted)
            return right(self, *arguments)

    def allocating(*arguments: Any) -> KvCache:
        at_allocation.append(sum(pool() is not None for pool in pools))
        return allocate(*arguments)

    allocate = KvCache.allocate
    monkeypatch.setattr(Capturer, "capture", counted)
    monkeypatch.setattr(KvCache, "allocate", allocating)
    monkeypatch.setenv("GRAPHPOD_FAULT", "capture:prefill:8")
    gc.disable()
    try:
        runner = started(**DEGRADE)
        alive = [pool() for pool in pools if pool() is not None]
    finally:
        gc.enable()
    assert len(pools) == 4  # prefill by each policy, decode measured, decode
    assert at_allocation == [0, 0]  # the scratch page, the cache
    assert alive == [runner._engine.graphs[Phase.Decode].pool]


def test_the_cache_is_sized_from_what_is_free_less_the_peak_of_a_chunk_and_a_margin(
    started: Callable[..., Runner], place: Place, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []

    def peak_of(self: Place, run: Callable[[], object]) -> int:
        logits, drawn = run()  # type: ignore[misc]
        assert {one.shape for one in drawn} == {logits.shape[:1]}, "draws by each way are part of the peak, too"
        rows.append(logits.shape[0])
        return 1_000_000

    monkeypatch.setattr(type(place), "peak_of", peak_of)
    monkeypatch.setattr(type(place), "available_bytes", lambda self: 2_000_000)
    runner = started(Policy.Disabled, Policy.Disabled, kv_cache_bytes=None)
    one_page = 2 * 3 * 4 * 3 * 16 * 4  # keys and values, layers, tokens, heads, width, bytes
    assert runner.report.kv_pages == (1_800_000 - 1_000_000) // one_page
    monkeypatch.setattr(type(place), "available_bytes", lambda self: 10**12)
    full = started(Policy.Disabled, Policy.Disabled, kv_cache_bytes=None, prefix_cache=PrefixCache.Off)
    assert full.report.kv_pages == 8 * 128 // 4
    most = PREFIX_TOKENS if device is Device.Cuda else 8 * 128
    assert started(Policy.Disabled, Policy.Disabled, kv_cache_bytes=None).report.kv_pages == most // 4
    assert rows == [8, 8, 8]  # the logits of a full batch are part of the peak


def test_the_cache_leaves_room_for_the_decode_graphs(
    started: Callable[..., Runner], place: Place, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are dropped before the cache is sized and captured again after it: what they took is not free."""
    taken: list[int] = []
    right = DegradingCapture.drop

    def noted(self: DegradingCapture, phase: Phase) -> int:
        taken.append(right(self, phase) + 200_000)
        return taken[-1]

    monkeypatch.setattr(DegradingCapture, "drop", noted)
    monkeypatch.setattr(type(place), "peak_of", lambda self, run: 1_000_000)
    monkeypatch.setattr(type(place), "available_bytes", lambda self: 2_000_000)
    runner = started(Policy.Disabled, Policy.Full, kv_cache_bytes=None)
    one_page = 2 * 3 * 4 * 3 * 16 * 4
    (bytes_of_decode,) = taken
    # Small graphs take nothing more of a GPU where the driver kept the memory of earlier ones.
    assert bytes_of_decode > 200_000 or device is Device.Cuda, "the graphs themselves were measured"
    assert runner.report.kv_pages == (1_800_000 - 1_000_000 - bytes_of_decode) // one_page


def test_the_peak_of_a_chunk_holds_the_log_probabilities_of_its_prompt(
    started: Callable[..., Runner], place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[int] = []
    right = starter.of_hidden

    def watched(model: Any, hidden: torch.Tensor, *others: Any) -> Any:
        scored.append(hidden.shape[0])
        return right(model, hidden, *others)

    monkeypatch.setattr(starter, "of_hidden", watched)
    started(Policy.Disabled, Policy.Disabled, kv_cache_bytes=None)
    assert scored == [32]  # the whole chunk: its logits are fewer than exist at one time
    monkeypatch.setattr(starter, "rows_at_once", lambda vocab: 5)
    started(Policy.Disabled, Policy.Disabled, kv_cache_bytes=None)
    assert scored[1:] == [5]


def test_the_cache_is_made_smaller_when_it_leaves_less_than_it_should(
    started: Callable[..., Runner], place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is free is read again once the cache exists: here the first one leaves too little."""
    one_page = 2 * 3 * 4 * 3 * 16 * 4
    made: list[int] = []
    right = KvCache.allocate

    def noted(shape: Any, pages: int, *others: Any) -> KvCache:
        made.append(pages - 1)
        return right(shape, pages, *others)

    monkeypatch.setattr(KvCache, "allocate", noted)
    monkeypatch.setattr(type(place), "peak_of", lambda self, run: 1_000_000)
    left = [2_000_000, 2_000_000, 900_000, 1_000_000]  # facts, sizing, after the first cache, after the second
    monkeypatch.setattr(type(place), "available_bytes", lambda self: left.pop(0))
    runner = started(Policy.Disabled, Policy.Disabled, kv_cache_bytes=None)
    first = 800_000 // one_page
    assert made[1:] == [first, first - -(-100_000 // one_page)]  # after the scratch cache
    assert runner.report.kv_pages == made[-1]
    assert not left


def test_a_cache_of_a_size_that_was_asked_for_leaves_room_for_a_prefill_too(
    started: Callable[..., Runner], place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(place), "peak_of", lambda self, run: 1_000_000)
    monkeypatch.setattr(type(place), "available_bytes", lambda self: 1_000_000)
    started(Policy.Disabled, Policy.Disabled, kv_cache_bytes=1 << 20)
    monkeypatch.setattr(type(place), "available_bytes", lambda self: 999_999)
    with pytest.raises(StartFailure, match="leaves 999999 bytes; decode graphs and a prefill chunk need 1000000"):
        started(Policy.Disabled, Policy.Disabled, kv_cache_bytes=1 << 20)


def test_no_capture_after_ready_and_the_attempt_is_counted(started: Callable[..., Runner]) -> None:
    runner = started()
    engine = runner._engine
    with pytest.raises(CaptureFailed, match="after Ready"):
        engine.capturer.capture(engine.passes[Phase.Decode], Policy.Full, (1,), lambda done: None)
    assert runner.counters.value("graphpod_graph_recaptures_total", phase="decode") == 1
    generate(runner, random_prompts(1), 2)
    assert runner.counters.value("graphpod_graph_recaptures_total") == 1
