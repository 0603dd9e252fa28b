"""Copies through slabs: what arrives, when a slab may be written again, and what goes another way."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphpod_runtime.base.process import processors
from graphpod_runtime.memory import staging
from graphpod_runtime.memory.staging import LEAST_BYTES, SLABS, Staging, put, using
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.models.tensor_destination import Target

SLAB = LEAST_BYTES // 4


class Copied:
    """An event that notes what is asked of it, among its slab's."""

    def __init__(self, number: int, notes: list[tuple[str, int]]) -> None:
        self._number, self._notes = number, notes

    def record(self) -> None:
        self._notes.append(("record", self._number))

    def synchronize(self) -> None:
        self._notes.append(("wait", self._number))


def _staging(notes: list[tuple[str, int]], size: int = SLAB) -> Staging:
    slabs = [torch.zeros(size, dtype=torch.uint8) for _ in range(SLABS)]
    return Staging(slabs, [Copied(number, notes) for number in range(SLABS)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float8_e4m3fn])
def test_every_byte_arrives_and_a_slab_is_written_after_its_last_copy(dtype: torch.dtype) -> None:
    source = torch.randn(LEAST_BYTES // 64 + 3, 64).to(dtype)
    into, notes = torch.zeros_like(source), list[tuple[str, int]]()
    with using(_staging(notes)):
        put(into, source)
        parts = -(-source.nbytes // SLAB)
        assert notes == [(what, part % SLABS) for part in range(parts) for what in ("wait", "record")]
    assert notes[2 * parts :] == [("wait", number) for number in range(SLABS)]
    assert torch.equal(into.view(torch.uint8), source.view(torch.uint8))


def _put(into: Tensor, source: Tensor) -> list[tuple[str, int]]:
    notes: list[tuple[str, int]] = []
    with using(_staging(notes)):
        put(into, source)
        seen = list(notes)
    assert torch.equal(into, source.to(into.dtype))
    return seen


def test_what_is_small_or_changes_on_its_way_is_copied_as_ever() -> None:
    large = torch.randn(1024, LEAST_BYTES // 4096)
    assert _put(torch.zeros_like(large), large)
    assert not _put(torch.zeros(7), torch.randn(7))
    assert not _put(torch.zeros_like(large, dtype=torch.bfloat16), large)
    assert not _put(torch.zeros(large.shape[::-1]).t(), large)
    assert not _put(torch.zeros(large.shape[::-1]), large.t())


def test_without_a_gpu_nothing_is_staged() -> None:
    with staging.staged(torch.device("cpu")):
        assert staging._CURRENT.get() is None


def test_rows_of_a_fused_weight_go_through_slabs() -> None:
    weight = torch.zeros(2048, 512)
    part, notes = torch.randn(1024, 512), list[tuple[str, int]]()
    with using(_staging(notes)):
        Target(weight, first=1024, rows=1024, plus=1.0).fill(part)
    assert torch.equal(weight[1024:], part + 1)
    assert not weight[:1024].any()
    assert notes.count(("record", 0)) > 1


def test_a_model_loads_the_same_through_slabs(llama_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = load_model(llama_folder, torch.float32, 64)
    notes: list[tuple[str, int]] = []
    monkeypatch.setattr(staging, "LEAST_BYTES", 1)
    with using(_staging(notes, 4096)):
        through = load_model(llama_folder, torch.float32, 64)
    assert notes
    pairs: Any = zip(plain.module().state_dict().items(), through.module().state_dict().items(), strict=True)
    for (name, one), (_, other) in pairs:
        assert torch.equal(one, other), name


def test_several_threads_copy_though_computing_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr(processors, "QUOTA", tmp_path / "none")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(before + 3)))
    with staging.copying_threads():
        assert torch.get_num_threads() == min(before + 3, staging.THREADS)
    assert torch.get_num_threads() == before
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    with staging.copying_threads():
        assert torch.get_num_threads() == before, "fewer than computing has would be of no use"
