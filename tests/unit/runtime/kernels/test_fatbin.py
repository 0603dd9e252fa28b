"""The GPUs that a library's code was compiled for are read from the library."""

from pathlib import Path

import pytest

from graphpod_policy import Architecture
from graphpod_runtime.kernels.fatbin import UnreadableLibrary, architectures_of
from tests.unit.runtime.kernels.library import RECORDED, library, unit

TURING, AMPERE, ADA, HOPPER = (Architecture(capability) for capability in ((7, 5), (8, 0), (8, 9), (9, 0)))
PTX = Architecture((8, 0), ptx=True)
ELSEWHERE = library(unit(AMPERE))
"""A library whose header is to lead somewhere else."""


def read(folder: Path, content: bytes) -> tuple[Architecture, ...]:
    file = folder / "kernels.so"
    file.write_bytes(content)
    return architectures_of(file)


def test_the_header_of_a_real_library_says_what_it_was_built_for(tmp_path: Path) -> None:
    code = bytes(0x293B8)
    whole = b"\x50\xed\x55\xba\x01\x00\x10\x00" + (len(RECORDED) + len(code)).to_bytes(8, "little") + RECORDED + code
    assert read(tmp_path, library(whole)) == (HOPPER,)


def test_a_gpu_must_run_a_part_of_every_translation_unit(tmp_path: Path) -> None:
    assert read(tmp_path, library(unit(AMPERE, HOPPER, PTX), unit(AMPERE, PTX))) == (AMPERE, PTX)


def test_a_library_without_gpu_code_has_none(tmp_path: Path) -> None:
    assert read(tmp_path, library()) == ()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no library",
        library(b"\0" * 16),
        library(unit(AMPERE))[:200],
        library(unit(AMPERE)[:16] + b"\x09" + unit(AMPERE)[17:]),
        library(unit(AMPERE)[:-60]),
        library(unit(AMPERE)[:6] + bytes(10)),
        ELSEWHERE[:40] + b"\xff" * 8 + ELSEWHERE[48:],
        ELSEWHERE[:62] + b"\xff" * 2 + ELSEWHERE[64:],
    ],
    ids=[
        "empty",
        "text",
        "no container",
        "cut off",
        "unknown kind",
        "too short",
        "no length",
        "sections far away",
        "no names",
    ],
)
def test_a_file_that_cannot_be_understood_is_named(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UnreadableLibrary, match=r"kernels\.so: no GPU code can be read: "):
        read(tmp_path, content)


@pytest.mark.parametrize(
    ("code", "runs", "not_on"),
    [
        (TURING, [(7, 5)], [(7, 0), (8, 0), (9, 0)]),
        (AMPERE, [(8, 0), (8, 6), (8, 9)], [(7, 5), (9, 0), (10, 0)]),
        (ADA, [(8, 9)], [(8, 0), (8, 6), (9, 0)]),
        (HOPPER, [(9, 0)], [(8, 9), (10, 0)]),
        (Architecture((10, 0)), [(10, 0)], [(9, 0), (10, 3), (12, 0)]),
        (PTX, [(8, 0), (8, 9), (9, 0), (10, 0)], [(7, 5)]),
        (Architecture((9, 0), ptx=True), [(9, 0)], [(8, 9), (10, 0)]),
    ],
    ids=str,
)
def test_where_code_runs(code: Architecture, runs: list[tuple[int, int]], not_on: list[tuple[int, int]]) -> None:
    assert all(map(code.runs_on, runs))
    assert not any(map(code.runs_on, not_on))
