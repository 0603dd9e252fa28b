"""The command line of `serve`: what is refused before anything starts."""

import argparse
import json
import socket
from pathlib import Path

import pytest

from graphpod_policy import ExitCode, ModelFacts, can_start
from graphpod_policy.http_limits import HttpLimits
from graphpod_policy.start.flags import BY_FLAGS, in_flags
from graphpod_runtime.api.local_config import LocalOptions, local_config
from graphpod_runtime.cli import main
from graphpod_runtime.front import app
from graphpod_runtime.front.access.arguments import add_http_options, http_options
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
    ("option", "number", "bounds"),
    [("--max-batch", "1025", "1 to 1024"), ("--max-model-len", "0", "1 to 1048576")],
)
def test_a_number_that_the_api_does_not_take_is_refused_by_its_option(
    capsys: pytest.CaptureFixture[str], option: str, number: str, bounds: str
) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--model", "/models/chat", option, number])
    assert f"argument {option}: {number} is not {bounds}" in capsys.readouterr().err


def test_the_limits_of_requests_are_options_with_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--max-body-size", "65536", "--header-timeout", "1.5", "--body-timeout", "2", "--read-timeout", "3600"]
    for given, limits in ((words, HttpLimits(65536, 1.5, 2, 3600)), ([], HttpLimits())):
        parser = argparse.ArgumentParser()
        add_http_options(parser)
        assert http_options(parser.parse_args(given))["limits"] == limits
    for option, least in zip(words[::2], ("65536 to 67108864", *["1 to 3600"] * 3), strict=True):
        with pytest.raises(SystemExit):
            parser.parse_args([option, "0.5" if least[0] == "1" else "65535"])
        assert f"argument {option}: " in (said := capsys.readouterr().err)
        assert f"is not {least}" in said


@pytest.mark.parametrize(
    ("content", "more", "code", "words"),
    [
        ("[1]", [], ExitCode.ModelInvalid, "holds no JSON object"),
        ("{}", [], ExitCode.ModelInvalid, "num_attention_heads"),
        (json.dumps(SHAPE), ["--prefill", "Full"], ExitCode.FeatureNotBuilt, "Full is not built"),
    ],
)
def test_a_folder_that_cannot_be_served_is_told_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, more: list[str], code: ExitCode, words: str
) -> None:
    (tmp_path / "config.json").write_text(content)
    assert main(["serve", "--model", str(tmp_path), *more]) == code
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spread", "said"),
    [
        ({"tensor_parallel": 3}, "tensor 3 does not divide 4 attention heads"),
        ({"pipeline_parallel": 3}, "pipeline 3 has more stages than the model has layers (2)"),
        ({"tensor_parallel": 2, "expert_parallel": 2}, "expert 2, and the model has no experts"),
    ],
)
def test_a_model_that_ranks_do_not_divide_is_refused_before_there_are_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_signals: None, spread: dict[str, int], said: str
) -> None:
    def engine(*_: object) -> None:
        raise AssertionError("a front with an engine")

    monkeypatch.setattr(app, "Front", engine)
    monkeypatch.setenv(BY_FLAGS, "1")
    (folder := tmp_path / "model").mkdir()
    shape = SHAPE | {"architectures": ["LlamaForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(shape))
    log = tmp_path / "termination-log"
    command = ["serve", "--model", str(folder), "--device", "cpu", "--host", "127.0.0.1", "--http-port", "0"]
    command += [word for name, count in spread.items() for word in (f"--{name.replace('_', '-')}", str(count))]
    assert main([*command, "--admin-port", "0", "--termination-log", str(log)]) == ExitCode.ParallelismInvalid
    asked = local_config(LocalOptions(folder, device="cpu", **spread))
    obstacles = can_start(asked, asked.resolved(), ModelFacts.of(shape))
    explained = "; ".join([*(one.what for one in obstacles), obstacles[0].step])
    assert said in explained
    assert log.read_text() == f"ParallelismInvalid: {in_flags(explained)}"


def test_a_port_in_use_is_named_in_the_termination_message(tmp_path: Path) -> None:
    config, log = engine_json(tmp_path, write_model(tmp_path / "model")), tmp_path / "termination-log"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = ["--host", "127.0.0.1", "--http-port", port, "--admin-port", "0", "--termination-log", str(log)]
        assert main(["serve", "--config", str(config), *words]) == ExitCode.SettingInvalid
    assert log.read_text().startswith(f"SettingInvalid: cannot listen on 127.0.0.1:{port}: Address already in use")
