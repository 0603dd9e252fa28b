"""The halves of a layer are compiled for any number of rows and shared by all layers: an exact number of compilations,
whatever the ladder, and none in a later start. Nothing of them ever runs uncompiled.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from graphpod_policy import CompileMode, Policy
from graphpod_runtime.compiled.cache import Code, CompileCache
from graphpod_runtime.engine.generate import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.graphs.segment import RecorderSegment
from graphpod_runtime.models.halves import After, Before, Halves
from tests.unit.runtime.conftest import random_prompts

FIFTY = tuple(range(2, 101, 2))
LAYERS, HALVES = 3, 2
CAPTURED = len(FIFTY) + 2 * 4
"""Graphs: the decode ladder of four is captured to be measured, and again to stay."""


@pytest.fixture
def caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[CompileCache]:
    """The compile cache of each start, in a folder that is empty before the first."""
    # Compiling is planned only on a GPU until it is proved there.
    monkeypatch.setattr("graphpod_runtime.engine.start.not_built", lambda features, request: ())
    monkeypatch.setenv("GRAPHPOD_COMPILE_CACHE", str(tmp_path))
    made: list[CompileCache] = []
    make = CompileCache.__init__

    def noted(self: CompileCache, folder: Path, device: torch.device) -> None:
        make(self, folder, device)
        made.append(self)

    monkeypatch.setattr(CompileCache, "__init__", noted)
    return made


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A word for each run of compiled code: whether it was in a capture."""
    words: list[str] = []
    where = ["outside"]
    run, call = Code.__call__, RecorderSegment.call

    def counted(self: Code, *arguments: object) -> object:
        words.append(where[-1])
        return run(self, *arguments)  # type: ignore[arg-type]

    def capturing(self: RecorderSegment, *noted: object) -> object:
        where.append("in a capture")
        try:
            return call(self, *noted)  # type: ignore[arg-type]
        finally:
            where.pop()

    monkeypatch.setattr(Code, "__call__", counted)
    monkeypatch.setattr(RecorderSegment, "call", capturing)
    return words


def test_a_ladder_of_50_sizes_compiles_each_half_once_and_a_later_start_not_at_all(
    started: Callable[..., Runner], caches: list[CompileCache], runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = random_prompts(8)
    expected = generate(started(Policy.Disabled, Policy.Disabled), prompts, 8, ignore_eos=True)
    settings = {"prefill_sizes": FIFTY, "prefill_chunk": 100, "compile": CompileMode.Inductor}
    first = started(Policy.Breakable, Policy.Full, **settings)
    assert generate(first, prompts, 8, ignore_eos=True) == expected
    take = Halves.compile

    def never(*arguments: object) -> object:
        raise AssertionError("the code that was compiled runs uncompiled")

    def then_compiled_only(self: Halves, cache: CompileCache) -> None:
        take(self, cache)
        for half, name in ((Before, "__call__"), (After, "__call__"), (After, "gated")):
            monkeypatch.setattr(half, name, never)

    monkeypatch.setattr(Halves, "compile", then_compiled_only)
    runs.clear()
    later = started(Policy.Breakable, Policy.Full, **settings)
    assert [(cache.compiles, cache.loads) for cache in caches] == [(HALVES, 0), (0, HALVES)]
    assert runs.count("in a capture") == CAPTURED * LAYERS * HALVES

    runs.clear()
    assert generate(later, prompts, 8, ignore_eos=True) == expected
    assert later.counters.value("graphpod_graph_fallbacks_total") == 0
    replays = later.counters.value("graphpod_graph_replays_total")
    assert runs == ["outside"] * int(replays * LAYERS * HALVES), "the recorder replays what was compiled"
