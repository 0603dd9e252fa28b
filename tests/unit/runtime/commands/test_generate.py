"""`graphpod-engine generate` on a tiny model with a word tokenizer."""

import json
from pathlib import Path
from typing import NoReturn

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from graphpod_policy import ExitCode
from graphpod_runtime import cli
from graphpod_runtime.commands.generate import main
from tests.unit.runtime.conftest import write_llama


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_llama(tmp_path_factory.mktemp("spoken"))
    tokenizer = Tokenizer(WordLevel({f"w{index}": index for index in range(211)}, unk_token="w0"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(path / "tokenizer.json"))
    return path


def test_two_prompts_give_two_answers_and_the_warmup_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", str(folder), "--plain", "--prompt", "w5 w6 w7", "--prompt", "w9", "--max-tokens", "4"]
    assert main([*arguments, "--json"]) == 0
    account = json.loads(capsys.readouterr().out)
    assert [answer["promptTokens"] for answer in account["answers"]] == [3, 1]
    assert all(answer["text"] == " ".join(f"w{t}" for t in answer["tokens"]) for answer in account["answers"])
    assert account["warmup"]["graph"]["prefill"]["effective"] == "Breakable"
    assert main([*arguments, "--prefill", "Disabled", "--decode", "Disabled"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [answer["text"] for answer in account["answers"]]
    assert "prefill Disabled (Recorder)" in printed.err


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        (["--prompt", "w5"], ExitCode.ConfigInvalid, "no chat template"),
        (["--prompt", "w5", "--plain", "--max-tokens", "4000"], ExitCode.ConfigInvalid, "context length is 512"),
        (["--prompt", "w5", "--plain", "--prefill", "Full"], ExitCode.FeatureNotBuilt, "not built"),
    ],
)
def test_a_request_that_cannot_be_met_ends_with_its_reason(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: list[str], code: ExitCode, words: str
) -> None:
    assert main(["--model", str(folder), *changes]) == code
    assert words in capsys.readouterr().err


def test_a_model_that_is_a_file_and_a_prompt_without_its_flag_have_their_step(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "config.json"
    assert main(["--model", str(file), "--prompt", "w5"]) == ExitCode.ModelInvalid
    assert capsys.readouterr().err == f"ModelInvalid: {file}: a file; give its folder\n"
    with pytest.raises(SystemExit):
        main(["w5 w6", "--model", str(folder)])
    assert "for a prompt use --prompt 'w5 w6'\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--max-tokens", "0", "1 to 1048576"),
        ("--max-tokens", str(10**26), "1 to 1048576"),
        ("--top-k", str(2**31), "0 to 2147483647"),
        ("--seed", str(2**63), f"to {2**63 - 1}"),
        ("--temperature", "-1", "0.0 to 2.0"),
        ("--top-p", "0", "to 1.0"),
        ("--top-p", "nan", "to 1.0"),
    ],
)
def test_a_figure_out_of_bounds_is_refused_before_a_start(
    folder: Path, capsys: pytest.CaptureFixture[str], flag: str, value: str, words: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--model", str(folder), "--prompt", "w5", flag, value])
    assert caught.value.code == 2
    printed = capsys.readouterr().err
    assert f"argument {flag}" in printed
    assert words in printed


def test_log_probabilities_are_told_with_their_texts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", str(folder), "--plain", "--prompt", "w5 w6 w7", "--max-tokens", "2"]
    assert main([*arguments, "--json", "--logprobs", "2", "--prompt-logprobs", "0"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    assert [one["token"] for one in answer["logprobs"]] == answer["tokens"]
    for one in answer["logprobs"]:
        assert one["text"] == f"w{one['token']}"
        assert one["top"][0] == {key: one[key] for key in ("token", "text", "logprob")}  # greedy
        assert 0 > one["top"][0]["logprob"] > one["top"][1]["logprob"]
    first, *others = answer["promptLogprobs"]
    assert first is None
    assert [(one["text"], one["top"]) for one in others] == [("w6", []), ("w7", [])]
    with pytest.raises(SystemExit):
        main([*arguments, "--logprobs", "2"])
    assert "--prompt-logprobs need --json; add it" in capsys.readouterr().err


def test_an_unknown_architecture_is_told_before_a_missing_tokenizer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["NoSuchForCausalLM"]}')
    assert main(["--model", str(tmp_path), "--prompt", "w5"]) == ExitCode.ModelInvalid
    assert "architecture 'NoSuchForCausalLM' is unknown; this engine runs LlamaForCausalLM" in capsys.readouterr().err


def test_a_start_that_fails_says_why_once(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHPOD_FAULT", "capture:prefil:64")
    assert main(["--model", str(folder), "--plain", "--prompt", "w5"]) == ExitCode.SettingInvalid
    assert capsys.readouterr().err.count("phase one of prefill, decode") == 1


def test_an_interrupted_command_says_so_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(arguments: list[str]) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("graphpod_runtime.commands.generate.main", interrupted)
    assert cli.main(["generate", "--prompt", "w5"]) == 130
    assert capsys.readouterr().err == "graphpod-engine generate: interrupted\n"


def test_without_a_command_all_of_them_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "  generate  generate from a prompt" in capsys.readouterr().err
