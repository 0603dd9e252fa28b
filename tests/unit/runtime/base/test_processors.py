"""A process has the processors that it may run on, and its container's quota of them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from graphpod_policy import Policy
from graphpod_runtime.base.process import processors as counting
from graphpod_runtime.base.process.processors import processors, whole_processors
from graphpod_runtime.engine.start import node
from graphpod_runtime.memory import staging
from tests.unit.runtime.conftest import engine_config


@pytest.fixture(autouse=True)
def _eight(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(counting, "QUOTA", tmp_path / "cpu.max")


@pytest.mark.parametrize(
    ("quota", "count", "whole"),
    [("max 100000\n", 8, 8), ("250000 100000\n", 2.5, 2), ("3200000 100000\n", 8, 8), ("50000 100000\n", 0.5, 1)],
)
def test_a_container_has_the_processors_of_its_quota(tmp_path: Path, quota: str, count: float, whole: int) -> None:
    assert (processors(), whole_processors()) == (8, 8)
    (tmp_path / "cpu.max").write_text(quota)
    assert (processors(), whole_processors()) == (count, whole)


def _copying(_: Path) -> int:
    with staging.copying_threads():
        return torch.get_num_threads()


def _of_a_rank(folder: Path) -> int | None:
    return node.threads_of(engine_config(folder, Policy.Disabled, Policy.Disabled, tensor=2, threads=None))


@pytest.mark.parametrize(("threads", "most", "least"), [(_copying, 8, 2), (_of_a_rank, 4, 1)])
def test_no_more_threads_are_made_than_the_quota_lets_run(
    tmp_path: Path,
    llama_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    threads: Callable[[Path], int],
    most: int,
    least: int,
) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        monkeypatch.setattr(node.torch, "get_num_threads", lambda: 8) if threads is _of_a_rank else None
        assert threads(llama_folder) == most
        (tmp_path / "cpu.max").write_text("200000 100000\n")
        assert threads(llama_folder) == least
    finally:
        torch.set_num_threads(before)
