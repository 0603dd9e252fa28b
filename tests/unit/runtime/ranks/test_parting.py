"""What a rank does with a GPU whose kernels wait for ranks that have been ended."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from graphpod_runtime.distributed import parting


class Gpu:
    """One with kernels that wait for another GPU, each until somebody has written what it waits for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kernels: int) -> None:
        self.left, self._ended = kernels, threading.Event()
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: SimpleNamespace(synchronize=lambda: None))
        monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device: self._ended.wait(5))
        parting.may_wait(torch.device("cuda", 0), [self])

    def end_waits(self) -> None:
        self.left -= 1
        if self.left == 0:
            self._ended.set()


def test_waits_are_ended_until_the_gpu_has_nothing_left_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass has a wait for each of its sums, one behind the other."""
    gpu = Gpu(monkeypatch, kernels=40)
    parting.let_go()
    assert gpu.left <= 0
    parting.end_groups()
    before = gpu.left
    parting.let_go()
    assert gpu.left == before, "this rank has left: another engine's kernels may run now"


def test_a_gpu_that_goes_on_waiting_keeps_nobody_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch, kernels=0)
    parting.let_go(seconds=0.1)
    assert gpu.left < 0
    assert any(thread.name == "ranks-gone" for thread in threading.enumerate()), "the GPU still works"
    parting.end_groups()


def test_a_failed_end_is_said_and_ends_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Gpu(monkeypatch, kernels=1)

    def captured(device: torch.device) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "synchronize", captured)
    parting.let_go()
    parting.end_groups()
    assert "operation not permitted when stream is capturing" in caplog.text
