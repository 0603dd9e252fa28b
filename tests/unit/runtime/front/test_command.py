"""The command line of `serve`: what is refused before anything starts."""

import json
import socket
from pathlib import Path

import pytest

from graphpod_policy import ExitCode
from graphpod_runtime.cli import main
from tests.unit.runtime.api.test_local_config import SHAPE

from .conftest import engine_json, write_model


def test_a_flag_that_the_file_decides_is_refused_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["serve", "--config", "engine.json", "--max-batch", "4"])
    assert caught.value.code == 2
    assert "--max-batch needs --model; with --config the file sets it" in capsys.readouterr().err


def test_a_port_that_cannot_be_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--config", "engine.json", "--http-port", "65536"])
    assert "argument --http-port: 65536 is not 0 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "more", "code", "words"),
    [
        ("[1]", [], ExitCode.ModelInvalid, "no model's configuration"),
        ("{}", [], ExitCode.ModelInvalid, "num_attention_heads"),
        (json.dumps(SHAPE), ["--prefill", "Full"], ExitCode.FeatureNotBuilt, "Full is not built"),
        (
            json.dumps(SHAPE),
            ["--max-model-len", "0"],
            ExitCode.ConfigInvalid,
            "maxModelLen: must be at least 1, is 0",
        ),
    ],
)
def test_a_folder_that_cannot_be_served_is_told_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, more: list[str], code: ExitCode, words: str
) -> None:
    (tmp_path / "config.json").write_text(content)
    assert main(["serve", "--model", str(tmp_path), *more]) == code
    assert words in capsys.readouterr().err


def test_a_port_in_use_is_named_in_the_termination_message(tmp_path: Path) -> None:
    config, log = engine_json(tmp_path, write_model(tmp_path / "model")), tmp_path / "termination-log"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = ["--host", "127.0.0.1", "--http-port", port, "--admin-port", "0", "--termination-log", str(log)]
        assert main(["serve", "--config", str(config), *words]) == ExitCode.SettingInvalid
    assert log.read_text().startswith(f"SettingInvalid: cannot listen on 127.0.0.1:{port}: Address already in use")
