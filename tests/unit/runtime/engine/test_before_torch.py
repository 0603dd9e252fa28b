"""What is begun before torch is imported."""

import os
import threading
from pathlib import Path

import pytest

from graphpod_policy import Device, Policy
from graphpod_runtime.engine import before_torch

from ..conftest import engine_config

PLAIN = (Policy.Disabled, Policy.Disabled)


def _ended() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("before-torch-"):
            thread.join(10)
            assert not thread.is_alive()


def test_all_of_the_weights_is_read_ahead_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"model-1.safetensors": before_torch.PIECE + 5, "model-2.safetensors": 7, "notes.bin": 9}
    for name, size in sizes.items():
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    asked: dict[str, list[tuple[int, int]]] = {}

    def note(file: int, at: int, length: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_WILLNEED
        asked.setdefault(Path(f"/proc/self/fd/{file}").readlink().name, []).append((at, length))

    monkeypatch.setattr(os, "posix_fadvise", note)

    before_torch.begin(engine_config(tmp_path, *PLAIN))
    _ended()

    piece = before_torch.PIECE
    assert asked == {"model-1.safetensors": [(0, piece), (piece, piece)], "model-2.safetensors": [(0, piece)]}


def test_a_start_without_weights_or_driver_fails_elsewhere(tmp_path: Path) -> None:
    before_torch.begin(engine_config(tmp_path / "missing", *PLAIN, device=Device.Cuda))
    _ended()


def test_of_a_folder_with_an_index_only_its_files_are_read_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("model-1.safetensors", "consolidated.safetensors"):
        (tmp_path / name).write_bytes(b"weights")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-1.safetensors"}}')
    asked: list[str] = []

    def note(file: int, *_: int) -> None:
        asked.append(Path(f"/proc/self/fd/{file}").readlink().name)

    monkeypatch.setattr(os, "posix_fadvise", note)

    before_torch.begin(engine_config(tmp_path, *PLAIN))
    _ended()

    assert asked == ["model-1.safetensors"]
