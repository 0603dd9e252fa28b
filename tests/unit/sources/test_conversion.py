"""A repository that has one GGUF file: it becomes a model folder."""

import json
from pathlib import Path

import pytest
from safetensors import safe_open

from graphpod_sources import conversion
from graphpod_sources.problem import Reason
from stubs import hub
from tests.unit.runtime.convert.tiny import Tiny
from tests.unit.sources.fetching import Fetched, there


@pytest.fixture
def served(tmp_path: Path) -> Path:
    folder = tmp_path / "served/org/tiny/main"
    folder.mkdir(parents=True)
    for name in ("q4.gguf", "q8.gguf"):
        Tiny().write(folder / name)
    return tmp_path / "served"


def fetched(served: Path, uri: str, tmp_path: Path) -> Fetched:
    with hub.serve(served).serving() as stub:
        return Fetched(uri, tmp_path / "cache", environment={"HF_ENDPOINT": stub.url})


def test_a_gguf_file_that_the_uri_names_becomes_a_model_folder(served: Path, tmp_path: Path) -> None:
    done = fetched(served, "hf://org/tiny@main/q4.gguf", tmp_path)
    assert done.problem is None
    folder = tmp_path / "cache/model"
    assert set(there(folder)) >= {"config.json", "model.safetensors", "tokenizer.json"}
    assert not list(folder.rglob("*.gguf"))
    assert json.loads((folder / "config.json").read_bytes())["architectures"] == ["LlamaForCausalLM"]
    with safe_open(folder / "model.safetensors", "numpy") as weights:
        assert "model.embed_tokens.weight" in weights.keys()  # noqa: SIM118 (no mapping)
    assert done.manifest is not None
    assert done.manifest.missing(folder) == []


def test_of_several_one_must_be_named_and_one_that_cannot_be_converted_is(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = fetched(served, "hf://org/tiny", tmp_path)
    assert several.reason is Reason.NoWeights
    assert several.problem is not None
    assert "hf://ORG/NAME@REVISION/FILE.gguf" in several.problem.message
    monkeypatch.setattr(conversion, "PROGRAM", "false")
    damaged = fetched(served, "hf://org/tiny@main/q8.gguf", tmp_path)
    assert damaged.reason is Reason.NoWeights
    assert damaged.problem is not None
    assert "cannot be converted" in damaged.problem.message
    full = tmp_path / "full"
    full.write_text("#!/bin/sh\necho 'x: No space left on device' >&2\nexit 1\n")
    full.chmod(0o755)
    monkeypatch.setattr(conversion, "PROGRAM", str(full))
    assert fetched(served, "hf://org/tiny@main/q8.gguf", tmp_path).reason is Reason.DiskFull


def test_without_the_converter_the_next_step_names_the_image(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "PROGRAM", "no-such-program")
    done = fetched(served, "hf://org/tiny@main/q4.gguf", tmp_path)
    assert done.problem is not None
    assert "engine's image" in done.problem.message
