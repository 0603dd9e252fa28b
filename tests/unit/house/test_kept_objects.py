"""The compiler of tests compiles the same once, and whatever differs again."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import TESTS

GCC = TESTS / "kept_objects" / "g++"
NOTE = "\n// Compile cmd\n// g++ x.cpp\n"


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[..., tuple[bytes, int]]:
    """compiled(source, *options) → the object, and how often the real compiler has compiled so far."""
    real, calls = tmp_path / "bin" / "g++", tmp_path / "calls"
    real.parent.mkdir()
    path = os.environ["PATH"]
    real.write_text(f'#!/bin/sh\ncase "$*" in *" -c "*) echo . >> {calls} ;; esac\nPATH={path} exec g++ "$@"\n')
    real.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{real.parent}:{path}",
        "GRAPHPOD_CACHE": str(tmp_path / "cache"),
    }
    source, out = tmp_path / "x.cpp", tmp_path / "x.o"

    def compile_(text: str, *options: str) -> tuple[bytes, int]:
        source.write_text(text)
        out.unlink(missing_ok=True)
        subprocess.run(
            [GCC, source, "-O1", *options, "-c", "-o", out], check=True, env=environment, capture_output=True
        )
        return out.read_bytes(), len(calls.read_text().splitlines())

    return compile_


def test_the_same_is_compiled_once_and_whatever_differs_again(compiled: Callable[..., tuple[bytes, int]]) -> None:
    first, calls = compiled("int x() { return 1; }")
    assert calls == 1
    assert compiled("int x() { return 1; }") == (first, 1)
    assert compiled(f"int x() {{ return 1; }}{NOTE}") == (first, 1), "inductor's note of its own command"
    for count, (text, *options) in enumerate(
        [("int x() { return 2; }",), ("int x() { return 1; }", "-O0"), ("int x() { return 1; }", "-march=native")], 2
    ):
        other, calls = compiled(text, *options)
        assert calls == count
        assert other
    assert compiled("int x() { return 1; }") == (first, 4)


def test_torch_of_the_same_version_at_another_place_is_the_same_and_of_another_version_is_not(
    compiled: Callable[..., tuple[bytes, int]], tmp_path: Path
) -> None:
    for place, version, count in (("a", "2.11", 1), ("b", "2.11", 1), ("a", "2.12", 2)):
        torch = tmp_path / place / "lib" / "site-packages" / "torch"
        (torch / "include").mkdir(parents=True, exist_ok=True)
        (torch / "version.py").write_text(version)
        assert compiled("int x() { return 1; }", f"-I{torch}/include")[1] == count


def test_what_cannot_be_compiled_is_no_object(compiled: Callable[..., tuple[bytes, int]]) -> None:
    for _ in range(2):
        with pytest.raises(subprocess.CalledProcessError) as caught:
            compiled("int x(")
        assert b"error" in caught.value.stderr
