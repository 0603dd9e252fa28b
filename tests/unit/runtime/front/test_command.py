"""The command line of `serve`: what is refused before anything starts."""

import argparse
import json
import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from graphpod_policy import EngineConfig, ExitCode, ModelConfig, ModelFacts, can_start
from graphpod_policy.config import StreamConfig
from graphpod_policy.http_limits import HttpLimits
from graphpod_policy.start.flags import BY_FLAGS, in_flags
from graphpod_runtime.api.local_config import LocalOptions, local_config
from graphpod_runtime.base.leader import LEADER
from graphpod_runtime.cli import main
from graphpod_runtime.commands.other_engines_flags import OMIT, USE
from graphpod_runtime.front import app, serve
from graphpod_runtime.front.access.arguments import add_http_options, http_options
from graphpod_runtime.streaming import folder as streaming
from graphpod_runtime.streaming.folder import Streamed
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
    ("words", "says"),
    [
        (["--tensor-parallel-size", "2"], "for --tensor-parallel-size use --tensor-parallel"),
        (["/models/chat"], "for a model's folder use --model /models/chat"),
        (["--tp=2", "--port", "80"], "for --tp use --tensor-parallel; for --port use --http-port"),
        (["--gpu-memory-utilization", "0.9"], "omit --gpu-memory-utilization: the KV cache takes the memory"),
        (["--tensor-paralel", "2"], "unrecognized arguments: --tensor-paralel 2; did you mean --tensor-parallel?"),
        (["--zzz"], "unrecognized arguments: --zzz\n"),
        (["--load-format", "auto"], "unrecognized arguments: --load-format auto\n"),
        (["--data-parallel-size", "2"], "omit --data-parallel-size: a server has one copy of the model"),
        (["--name", "--tp=2 or not", "--zzz"], "unrecognized arguments: --zzz\n"),
        (["/models/a", "--model", "/models/b"], "unrecognized arguments: /models/a\n"),
    ],
)
def test_a_flag_of_another_engine_is_refused_with_our_own(
    capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["serve", *words] if words[0][0] == "/" else ["serve", "--model", "/models/chat", *words])
    assert caught.value.code == 2
    assert says in capsys.readouterr().err


def test_each_flag_that_takes_the_place_of_another_engines_is_one_of_serve(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    own = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    assert own >= set(re.findall(r"--[a-z-]+", " ".join(USE.values())))
    assert not own & {*USE, *OMIT}


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


def test_the_help_has_the_host_cache_and_its_files_next_to_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  --")]
    first = listed.index("--host-cache")
    assert listed[first : first + 3] == ["--host-cache", "--host-cache-folder", "--host-cache-files"]


def opened(*_: object) -> NoReturn:
    raise AssertionError("a port was opened")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--max-model-len", "4096"), ExitCode.ContextTooLong, "--max-model-len 4096 is more than the "),
        (("--speculative", "Mtp"), ExitCode.ModelUnsupported, "--speculative Mtp: "),
        (("--api-key-file", "/nowhere"), ExitCode.SettingInvalid, "the API key in /nowhere cannot be read: "),
        (("--tls-folder", "/nowhere"), ExitCode.SettingInvalid, "/nowhere has no usable certificate"),
        (
            ("--nodes", "2", "--pipeline-parallel", "2"),
            ExitCode.SettingInvalid,
            "an engine of 2 machines needs the address of the leader's: '' is not HOST:PORT; set --leader HOST:PORT",
        ),
        (
            ("--nodes", "2", "--pipeline-parallel", "2", "--leader", "here:65534"),
            ExitCode.SettingInvalid,
            "'here:65534' needs ports up to 65537, and 65535 is the last; set --leader HOST:PORT",
        ),
    ],
)
def test_what_settings_rule_out_is_refused_before_a_port_is_open(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own_signals: None,
    words: tuple[str, ...],
    code: ExitCode,
    said: str,
) -> None:
    monkeypatch.setattr(serve, "listen", opened)
    for name in (LEADER, BY_FLAGS):
        monkeypatch.setenv(name, "")  # it is as it was after the test, whatever the command sets
    (folder := tmp_path / "model").mkdir()
    (folder / "config.json").write_text(json.dumps(SHAPE | {"architectures": ["LlamaForCausalLM"]}))
    log = tmp_path / "termination-log"
    command = ["serve", "--model", str(folder), "--device", "cpu", "--termination-log", str(log), *words]
    assert main(command) == code
    assert log.read_text().startswith(f"{code.name}: ")
    assert said in log.read_text()


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [('"maxBatch"', '"maxBunch"', "maxBunch"), ("{", "[", "not JSON"), (None, None, "No such file or directory")],
)
def test_a_configuration_that_cannot_be_read_says_why_and_opens_no_port(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own_signals: None,
    before: str | None,
    after: str | None,
    said: str,
) -> None:
    monkeypatch.setattr(serve, "listen", opened)
    path, log = engine_json(tmp_path, write_model(tmp_path / "model")), tmp_path / "termination-log"
    if before is None or after is None:
        path.unlink()
    else:
        path.write_text(path.read_text().replace(before, after, 1))
    assert main(["serve", "--config", str(path), "--termination-log", str(log)]) == ExitCode.ConfigInvalid
    assert log.read_text().startswith(f"ConfigInvalid: {path}: ")
    assert said in log.read_text()


def test_what_a_streamed_models_config_rules_out_is_refused_once_it_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_signals: None
) -> None:
    """The folder may have files of an earlier start, of another model: the source's own decide."""
    folder, log = tmp_path / "model", tmp_path / "termination-log"
    config = EngineConfig.parse(engine_json(tmp_path, folder).read_bytes())
    streamed = replace(config, model=ModelConfig("echo", str(folder), StreamConfig("hf://org/model")))
    (path := tmp_path / "engine.json").write_bytes(streamed.canonical())

    def write(positions: int) -> None:
        shape = SHAPE | {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": positions}
        (folder / "config.json").write_text(json.dumps(shape))

    folder.mkdir()
    write(8)

    def prepare(where: Path, asked: StreamConfig) -> Streamed:
        write(512)
        return Streamed(asked.uri, (), ())

    monkeypatch.setattr(streaming, "prepare", prepare)
    monkeypatch.setattr(app, "run", opened)
    words = ("--host", "127.0.0.1", "--http-port", "0", "--admin-port", "0", "--termination-log", str(log))
    assert main(["serve", "--config", str(path), *words]) == ExitCode.ContextTooLong
    assert log.read_text().startswith("ContextTooLong: spec.engine.maxModelLen 200000 is more than the 512 positions")


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
    monkeypatch.setattr(serve, "listen", opened)
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
