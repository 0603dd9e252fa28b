"""What the process may still take: the machine's memory or the container's limit."""

from pathlib import Path

import pytest
import torch

from graphpod_runtime.engine.start.memory import available_bytes, peak_of


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    path = tmp_path / "meminfo"
    path.write_text("MemTotal: 100 kB\nMemAvailable: 64 kB\n")
    return path


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")
    return folder


def test_without_a_limit_the_machine_decides(tmp_path: Path, meminfo: Path) -> None:
    assert available_bytes(tmp_path / "absent", meminfo) == 64 * 1024
    unlimited = write(tmp_path / "v2", memory__max="max", memory__current="5", memory__stat="inactive_file 1")
    assert available_bytes(unlimited, meminfo) == 64 * 1024


def test_a_limit_counts_droppable_cache_as_free(tmp_path: Path, meminfo: Path) -> None:
    limited = write(
        tmp_path / "v2", memory__max="9000", memory__current="5000", memory__stat="anon 7\ninactive_file 900"
    )
    assert available_bytes(limited, meminfo) == 9000 - 5000 + 900


def test_the_older_hierarchy_is_read_too(tmp_path: Path, meminfo: Path) -> None:
    write(
        tmp_path / "v1" / "memory",
        memory__limit_in_bytes="9000",
        memory__usage_in_bytes="8950",
        memory__stat="total_inactive_file 30",
    )
    assert available_bytes(tmp_path / "v1", meminfo) == 80


def test_the_peak_of_code_is_at_least_what_it_held() -> None:
    held = 64 << 20
    assert peak_of(lambda: torch.ones(held, dtype=torch.uint8).sum()) >= held * 0.9
