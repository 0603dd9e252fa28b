"""Streams are bounded: in the memory they take, in what a source may make them read, and in how they end."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from graphpod_policy import ExitCode, Policy, StreamConfig
from graphpod_runtime.base.errors import SourceFailed
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.engine.start.device_state import loaded
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.streaming import folder as streaming
from graphpod_runtime.streaming import headers
from graphpod_runtime.streaming.folder import NAME, prepare
from graphpod_runtime.streaming.tensors import KEPT, Pinned
from stubs import s3
from stubs.faults.fault import Fault, Freeze
from stubs.signature import Key
from stubs.web import WebStub, Where
from tests.eventually import Eventually
from tests.unit.runtime.conftest import engine_config, write_llama

URI = "s3://models/tiny"


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    place = tmp_path / "served/models/tiny"
    place.mkdir(parents=True)
    return write_llama(place)


@pytest.fixture
def storage(origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    key = Key("reader", "not a secret")
    with s3.serve(tmp_path / "served", key).serving() as stub:
        secret = tmp_path / "secret"
        secret.mkdir()
        for name, text in (("AWS_ACCESS_KEY_ID", key.id), ("AWS_SECRET_ACCESS_KEY", key.secret), ("hosts", stub.url)):
            (secret / name).write_text(text)
        monkeypatch.setattr(streaming, "CREDENTIALS", secret)
        monkeypatch.setenv("AWS_ENDPOINT_URL", stub.url)
        yield stub


def test_sigterm_ends_a_start_whose_source_says_nothing(storage: WebStub, tmp_path: Path) -> None:
    """Within a grace period, while one request alone would be waited for longer."""
    storage.board.add(Fault(Freeze(), Where()))
    given = engine_config(tmp_path, Policy.Disabled, Policy.Disabled)
    file = tmp_path / "engine.json"
    model = replace(given.model, path=str(tmp_path / "here"), stream=StreamConfig(URI))
    file.write_bytes(replace(given, model=model).canonical())
    ports = "--host", "127.0.0.1", "--http-port", "0", "--admin-port", "0"
    command = [sys.executable, "-m", "graphpod_runtime.cli", "serve", "--config", str(file), *ports]
    with subprocess.Popen(command, env=os.environ, stderr=subprocess.DEVNULL) as process:
        try:
            Eventually()(lambda: storage.counts() or process.poll() is not None, timeout=60.0, every=0.02)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()


@pytest.mark.parametrize(("name", "bound"), [("config.json", "LARGEST_CONFIG"), (streaming.INDEX, "LARGEST_INDEX")])
def test_a_text_that_is_parsed_is_bounded(
    storage: WebStub, origin: Path, tmp_path: Path, name: str, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (origin / name).write_text((origin / "config.json").read_text() + " " * 9000)
    monkeypatch.setattr(streaming, bound, 9000)
    with pytest.raises(SourceFailed, match=rf"^NoWeights: {URI}: its {name} has .* KiB, more than a model's can have"):
        prepare(tmp_path / "here", StreamConfig(URI))


def test_tensors_of_all_files_together_are_bounded(
    storage: WebStub, origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (origin / "more.safetensors").write_bytes((origin / "model.safetensors").read_bytes())
    monkeypatch.setattr(streaming, "MOST_TENSORS", 40)  # of one file with 29
    with pytest.raises(SourceFailed, match=rf"^NoWeights: {URI}: its files have more than 40 tensors"):
        prepare(tmp_path / "here", StreamConfig(URI))
    monkeypatch.setattr(headers, "MOST_TENSORS", 20)
    with pytest.raises(SourceFailed, match=r"^NoWeights: .*entries, and a model can have 20 tensors"):
        prepare(tmp_path / "here", StreamConfig(URI))


def test_a_map_in_the_folder_of_a_service_without_a_stream_is_refused(origin: Path) -> None:
    """Whoever fills a claim would say where the engine connects to."""
    (origin / NAME).write_text(json.dumps({"uri": "hf://other/model@main", "hosts": ["*"], "files": []}))
    config = engine_config(origin, Policy.Disabled, Policy.Disabled)
    with pytest.raises(StartFailure, match="the spec streams none; remove that file") as caught:
        loaded(config, cast(Any, None), load_model, lambda: None)
    assert caught.value.code is ExitCode.ModelInvalid


def test_pinned_buffers_that_are_free_go_back_before_every_size_keeps_its_own() -> None:
    events: list[object] = []

    def made(count: int) -> torch.Tensor:
        events.append(count)
        return torch.empty(0)

    buffer = Pinned(made, lambda: events.append("emptied"))
    half = KEPT // 2
    for count in (half - 5, half, 100, KEPT * 2, 1):
        buffer(count)
    assert events == [half - 5, half, "emptied", 100, "emptied", KEPT * 2, "emptied", 1]
