"""The halves of a layer are compiled for any number of rows and shared by all layers: an exact number of compilations,
whatever the ladder, and none in a later start where they are kept. Nothing of them ever runs uncompiled.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphpod_policy import CompileMode, Device, Policy
from graphpod_runtime.compiled.cache import CompileCache, CompiledCode
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.graphs.segments.cpu import RecorderSegment
from graphpod_runtime.models.layers.layer_functions import After, Before, LayerFunctions
from tests.unit.runtime.conftest import random_prompts

FIFTY = tuple(range(2, 101, 2))
LAYERS, HALVES = 3, 2
CAPTURED = len(FIFTY) + 2 * 4
"""Graphs: the decode ladder of four is captured to be measured, and again to stay."""


@pytest.fixture
def caches(monkeypatch: pytest.MonkeyPatch) -> list[CompileCache]:
    """The compile cache of each start that compiles."""
    made: list[CompileCache] = []

    class Noted(CompileCache):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr("graphpod_runtime.engine.start.starter.CompileCache", Noted)
    return made


@pytest.fixture(scope="module")
def filled() -> list[Path]:
    """Folders that a test here has filled: a later test need not compile the same halves again."""
    return []


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A word for each run of compiled code: whether it was in a capture."""
    words: list[str] = []
    where = ["outside"]
    run, call = CompiledCode.__call__, RecorderSegment.call

    def counted(self: CompiledCode, *arguments: object) -> object:
        words.append(where[-1])
        return run(self, *arguments)  # type: ignore[arg-type]

    def capturing(self: RecorderSegment, *noted: object) -> object:
        where.append("in a capture")
        try:
            return call(self, *noted)  # type: ignore[arg-type]
        finally:
            where.pop()

    monkeypatch.setattr(CompiledCode, "__call__", counted)
    monkeypatch.setattr(RecorderSegment, "call", capturing)
    return words


def forbid_uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: object) -> object:
        raise AssertionError("the code that was compiled runs uncompiled")

    for half, name in ((Before, "__call__"), (After, "__call__"), (After, "widened")):
        monkeypatch.setattr(half, name, never)


def test_a_ladder_of_50_sizes_compiles_each_half_once(
    started: Callable[..., Runner],
    caches: list[CompileCache],
    runs: list[str],
    device: Device,
    filled: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("GRAPHPOD_COMPILE_CACHE", str(tmp_path))
    prompts = random_prompts(8)
    expected = generate(started(Policy.Disabled, Policy.Disabled), prompts, 8, ignore_eos=True)
    settings = {"prefill_sizes": FIFTY, "prefill_chunk": 100, "compile": CompileMode.Inductor}
    runner = started(Policy.Breakable, Policy.Full, **settings)
    (cache,) = caches
    assert (cache.compiles, cache.loads) == (HALVES, 0)
    forbid_uncompiled(monkeypatch)
    runs.clear()
    assert generate(runner, prompts, 8, ignore_eos=True) == expected
    assert cache.compiles == HALVES
    assert runner.counters.value("graphpod_graph_fallbacks_total") == 0
    replays = runner.counters.value("graphpod_graph_replays_total")
    # What the recorder noted runs at a replay; a CUDA graph has its kernels.
    assert runs == ["outside"] * (int(replays * LAYERS * HALVES) if device is Device.Cpu else 0)
    if device is Device.Cpu:
        filled.append(tmp_path)


@pytest.mark.parametrize("device", [Device.Cpu], indirect=True, ids=str)
def test_a_later_start_compiles_and_traces_nothing_where_code_is_compiled_ahead_of_time(
    started: Callable[..., Runner],
    caches: list[CompileCache],
    runs: list[str],
    filled: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if filled:
        monkeypatch.setenv("GRAPHPOD_COMPILE_CACHE", str(filled[0]))
    started(Policy.Breakable, Policy.Full, compile=CompileMode.Inductor)
    take = LayerFunctions.compile
    monkeypatch.setattr("graphpod_runtime.compiled.cache.prove", lambda *arguments: None)  # it runs both, beside starts

    def then_compiled_only(self: LayerFunctions, cache: CompileCache | None) -> int:
        halves = take(self, cache)
        forbid_uncompiled(monkeypatch)
        return halves

    monkeypatch.setattr(LayerFunctions, "compile", then_compiled_only)
    runs.clear()
    started(Policy.Breakable, Policy.Full, prefill_sizes=FIFTY, prefill_chunk=100, compile=CompileMode.Inductor)
    first, later = caches
    assert first.compiles + first.loads == HALVES, "an earlier test may have started this model"
    assert (later.compiles, later.loads) == (0, HALVES)
    assert runs.count("in a capture") == CAPTURED * LAYERS * HALVES
