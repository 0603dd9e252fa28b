"""The compiled halves of the family whose layers differ most: windows, two kinds of positions, norms of results."""

from collections.abc import Callable
from pathlib import Path

import pytest

from graphpod_policy import CompileMode, Policy
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from tests.unit.runtime.conftest import random_prompts, write_family


def test_a_gemma_needs_no_more_compilations_than_a_llama(
    tmp_path: Path, started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHPOD_COMPILE_CACHE", str(tmp_path / "compiled"))
    folder, prompts = write_family(tmp_path / "model", "gemma3"), random_prompts(8)
    expected = generate(started(Policy.Disabled, Policy.Disabled, folder=folder), prompts, 8, ignore_eos=True)
    runner = started(Policy.Breakable, Policy.Full, folder=folder, compile=CompileMode.Inductor)
    kept = sorted(path.name.partition("-")[0] for path in (tmp_path / "compiled").iterdir())
    assert kept == ["after", "before"], "each half once, for any number of rows"
    assert generate(runner, prompts, 8, ignore_eos=True) == expected
