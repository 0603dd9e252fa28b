"""What a start does in a thread while weights are read."""

import logging
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from graphpod_policy import ExitCode, Policy
from graphpod_policy.cost.selfcheck import comparisons
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.known_model import model_of
from graphpod_runtime.distributed.agreement import ALONE
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start import starter
from graphpod_runtime.engine.start.device import Host
from graphpod_runtime.engine.start.rehearsal import during_load
from graphpod_runtime.engine.start.rehearsal.during_load import (
    SWITCH,
    Steps,
    attend,
    done_during,
    multiply,
    multiply_all,
    sample,
    steps_of,
)
from graphpod_runtime.kernels.sampling.draw import draw_by_torch
from graphpod_runtime.models.loader import load_model

from ..conftest import DECODE_SIZES, PREFILL_SIZES, engine_config

CPU = torch.device("cpu")


LIMIT = 60.0
"""Seconds."""


class Hanging:
    """A step that has begun, and ends when it is let go on."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        self.go.wait(LIMIT)


def _alive() -> bool:
    return any(one.name.startswith("during-load") for one in threading.enumerate())


def test_steps_run_in_their_order_in_a_thread_that_has_ended_with_the_block(caplog: pytest.LogCaptureFixture) -> None:
    done: list[tuple[str, str, bool]] = []
    before, go = sys.getswitchinterval(), threading.Event()

    def step(name: str) -> None:
        go.wait(LIMIT)
        done.append((name, threading.current_thread().name, torch.is_grad_enabled()))

    caplog.set_level(logging.INFO)
    with done_during(Steps(tuple((name, lambda name=name: step(name)) for name in ("first", "second"))), CPU):
        assert sys.getswitchinterval() == pytest.approx(SWITCH)
        assert not done
        go.set()
    assert done == [("first", "during-load", False), ("second", "during-load", False)]
    assert sys.getswitchinterval() == pytest.approx(before)
    assert not _alive()
    assert re.search(r"during the load: first \d+\.\d\d, second \d+\.\d\d s;", caplog.text)


def test_lanes_begin_behind_what_is_first_and_run_side_by_side(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []
    meeting = threading.Barrier(2)

    def meets(name: str) -> None:
        meeting.wait(LIMIT)
        done.append(name)

    first = ("triton", lambda: done.append("triton"))
    lanes = ((("compiler", lambda: meets("one")),), (("products", lambda: meets("other")),))
    caplog.set_level(logging.INFO)
    with done_during(Steps((first,), lanes), CPU):
        pass
    assert done[0] == "triton"
    assert sorted(done[1:]) == ["one", "other"]
    assert not _alive()
    assert all(re.search(rf"{name} \d+\.\d\d", caplog.text) for name in ("triton", "compiler", "products"))


def test_a_lane_that_hangs_is_named_while_the_other_has_ended() -> None:
    hanging, compiled = Hanging(), threading.Event()
    lanes = ((("compiler", lambda: None), ("ended", compiled.set)), (("products", lambda: None), ("sampling", hanging)))
    try:
        with (
            pytest.raises(StartFailure, match='step "sampling" has not ended'),
            done_during(Steps((("triton", lambda: None),), lanes), CPU, 0.2),
        ):
            assert compiled.wait(LIMIT) and hanging.begun.wait(LIMIT)  # noqa: PT018
    finally:
        hanging.go.set()


def test_a_step_that_fails_is_logged_and_the_next_one_runs(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []

    def fails() -> None:
        raise RuntimeError("no such kernel")

    with done_during(Steps((("sampling", fails), ("attention", lambda: done.append("attention")))), CPU):
        pass
    assert done == ["attention"]
    [record] = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert "sampling: the start does it again" in record.getMessage()
    assert record.exc_info is not None
    assert "no such kernel" in str(record.exc_info[1])


def test_a_start_that_fails_begins_no_other_step(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, failed, done = threading.Event(), threading.Event(), list[str]()

    def first() -> None:
        begun.set()
        failed.wait(LIMIT)

    def waited(*_: Any) -> bool:
        """The block has ended before the first step does."""
        failed.set()
        return ended(*_)

    ended = during_load._ended
    monkeypatch.setattr(during_load, "_ended", waited)

    def load() -> None:
        with done_during(Steps((("first", first), ("second", lambda: done.append("second")))), CPU):
            begun.wait(LIMIT)
            raise ValueError("the weights do not fit")

    with pytest.raises(ValueError, match="do not fit"):
        load()
    assert not done
    assert not _alive()


def test_a_step_that_hangs_ends_the_start_by_its_name_within_the_limit_of_the_stage() -> None:
    hanging, before, beats = Hanging(), sys.getswitchinterval(), list[float]()
    steps = Steps((("products", lambda: None), ("attention", hanging)))
    try:
        with (
            pytest.raises(StartFailure, match='step "attention" has not ended 0 s after') as failed,
            done_during(steps, CPU, 0.05, lambda: beats.append(1.0)),
        ):
            assert hanging.begun.wait(LIMIT)
    finally:
        hanging.go.set()
    assert failed.value.code is ExitCode.Stuck
    assert beats, "who watches the start hears that it waits"
    assert sys.getswitchinterval() == pytest.approx(before)


def test_a_load_that_fails_is_the_cause_even_where_a_step_hangs(caplog: pytest.LogCaptureFixture) -> None:
    hanging = Hanging()

    def load() -> None:
        with done_during(Steps((("attention", hanging),)), CPU, 0.05):
            assert hanging.begun.wait(LIMIT)
            raise ValueError("the weights do not fit")

    try:
        with pytest.raises(ValueError, match="do not fit"):
            load()
    finally:
        hanging.go.set()
    assert 'step "attention" has not ended' in caplog.text


def test_a_thread_that_cannot_be_started_leaves_the_switch_interval_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = sys.getswitchinterval()
    monkeypatch.setattr(threading.Thread, "start", none_left)
    with pytest.raises(RuntimeError, match="new thread"), done_during(Steps((("first", lambda: None),)), CPU):
        pass
    assert sys.getswitchinterval() == pytest.approx(before)


def test_a_start_gives_a_step_the_time_of_its_stage(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    monkeypatch.setattr(during_load, "steps_of", lambda *_: Steps((("compiler", lambda: go.wait(60)),)))
    monkeypatch.setattr(starter, "stage_limits", lambda plan: {"Loading": 0.05})
    try:
        with pytest.raises(StartFailure, match='step "compiler" has not ended') as failed:
            started()
    finally:
        go.set()
    assert failed.value.code is ExitCode.Stuck


def test_a_cpu_has_no_steps(llama_folder: Path) -> None:
    config = engine_config(llama_folder, Policy.Breakable, Policy.Full)
    assert steps_of(config, Host(), model_of(llama_folder), ALONE, compiles=True) == Steps()


def test_a_gpu_has_those_that_its_start_needs(llama_folder: Path) -> None:
    config = engine_config(llama_folder, Policy.Breakable, Policy.Full)
    place: Any = SimpleNamespace(device=torch.device("cuda", 0))

    def names(model: bool = True, compiles: bool = True, **ranks: int) -> list[list[str]]:
        of_ranks: Any = SimpleNamespace(**({"rank": 0, "count": 1} | ranks))
        steps = steps_of(config, place, model_of(llama_folder) if model else None, of_ranks, compiles)
        return [[name for name, _ in lane] for lane in (steps.first, *steps.lanes)]

    assert names() == [["triton"], ["compiler"], ["products", "sampling", "attention", "every size"]]
    assert names(compiles=False, model=False) == [["triton"], ["products", "attention", "every size"]]
    assert names(rank=1, count=2) == [["triton"], ["compiler"], ["products"]]


def test_sampling_is_rehearsed_with_the_kinds_of_logits_that_the_start_rehearses(
    llama_folder: Path, started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: list[set[Any]] = [set(), set()]
    into = kinds[0]

    def noting(logits: Tensor, chosen: Tensor, positions: Tensor, draws: Any) -> Tensor:
        cuts = draws.cuts_k, draws.cuts_p, draws.cuts_far
        into.add((logits.dtype, logits.shape[1], logits.stride(), chosen.dtype, positions.dtype, cuts))
        return draw_by_torch(logits, chosen, positions, draws)

    monkeypatch.setattr("graphpod_runtime.engine.start.rehearsal.sampling.drawer_for", lambda device: noting)
    runner = started(max_batch=6)
    into = kinds[1]
    sample(runner.vocabulary, runner.config, CPU)
    assert kinds[0] == kinds[1]
    assert {kind[-1] for kind in kinds[0]} == {(False,) * 3, (True,) * 3}


def test_attention_and_products_run_without_weights(llama_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = engine_config(llama_folder, Policy.Breakable, Policy.Full)
    made: list[Any] = []
    real = during_load.attention_of

    def noting(*arguments: Any) -> Any:
        chosen = real(*arguments)
        run = chosen.backend.run
        chosen.backend.run = lambda layer, *heads: made.append(run(layer, *heads))  # type: ignore[method-assign]
        return chosen

    monkeypatch.setattr(during_load, "attention_of", noting)
    attend(config, CPU)
    multiply(torch.float32, CPU)
    assert [result.shape[0] for result in made] == [2, 2]
    assert all(bool(result.isfinite().all()) for result in made)


def test_a_start_loads_within_the_block(
    llama_folder: Path, started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    real = starter.Sleeping

    def sleeping(*arguments: Any) -> Any:
        seen.append("loading" if _alive() else "alone")
        return real(*arguments)

    go = threading.Event()
    monkeypatch.setattr(during_load, "steps_of", lambda *_: Steps((("waiting", lambda: go.wait(LIMIT)),)))
    monkeypatch.setattr(starter, "Sleeping", lambda *arguments: (sleeping(*arguments), go.set())[0])
    started()
    assert seen == ["loading"]


def test_a_layer_is_multiplied_at_every_size_as_its_own_matrices_are(
    llama_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = engine_config(llama_folder, Policy.Breakable, Policy.Full)
    made: set[tuple[int, int, int]] = set()

    def noting(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        assert x.is_contiguous()
        assert weight.is_contiguous()
        made.add((x.shape[0], *weight.shape))
        return x

    monkeypatch.setattr(during_load, "product", noting)
    multiply_all(config, CPU)
    layer = load_model(llama_folder, torch.float32, 64).module().get_submodule("body.layers.0")
    weights = {tuple(one.shape) for one in layer.parameters() if one.dim() == 2}
    eager = {rows for sizes in (PREFILL_SIZES, DECODE_SIZES) for one in comparisons(sizes) if one.eager
             for rows in (one.count, one.padded)}  # fmt: skip
    sizes = {config.prefill_chunk, *PREFILL_SIZES, *DECODE_SIZES, *eager}
    assert made == {(size, *weight) for size in sizes for weight in weights}
