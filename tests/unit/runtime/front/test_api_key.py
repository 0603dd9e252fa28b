"""The key that clients must send: on the API port but for /health and /ping, and read again when it changes."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx2
import openai
import pytest

from graphpod_policy import ExitCode
from graphpod_runtime.front.access.api_key import ApiKey, ApiKeyInvalid

from .conftest import Front, engine_json, write_model


def write(file: Path, text: str) -> None:
    """As the kubelet does: a new file takes the name of the old one."""
    draft = file.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "api-key"
    write(path, "first\n")
    return path


@pytest.mark.parametrize("header", ["Bearer first", "bearer first", "Bearer  first "])
def test_the_key_is_let_in(file: Path, header: str) -> None:
    assert ApiKey(file).admits(header)


@pytest.mark.parametrize("header", ["", "first", "Bearer", "Bearer ", "Bearer firs", "Bearer first2", "Basic first"])
def test_anything_else_is_not(file: Path, header: str) -> None:
    assert not ApiKey(file).admits(header)


def test_a_new_value_counts_at_once_and_several_count_together(file: Path) -> None:
    key = ApiKey(file)
    write(file, "first\nsecond\n")
    assert [key.admits(f"Bearer {word}") for word in ("first", "second")] == [True, True]
    write(file, "second\n")
    assert [key.admits(f"Bearer {word}") for word in ("first", "second")] == [False, True]


@pytest.mark.parametrize("spoil", [lambda file: write(file, " \n"), os.remove])
def test_a_value_that_is_spoilt_neither_opens_the_door_nor_shuts_it(file: Path, spoil: Callable[[Path], None]) -> None:
    key = ApiKey(file)
    spoil(file)
    assert [key.admits(header) for header in ("Bearer first", "Bearer ", "")] == [True, False, False]
    with pytest.raises(ApiKeyInvalid, match="api-key"):
        ApiKey(file)


@pytest.mark.parametrize("line", ["correct horse", "schlüssel", "tab\tulator"])
def test_what_a_header_cannot_carry_whole_is_no_key_and_is_not_told(file: Path, line: str) -> None:
    write(file, f"first\n\n{line}\n")
    with pytest.raises(ApiKeyInvalid, match=r"line 3 of .*api-key is not an API key") as refused:
        ApiKey(file)
    assert line.split()[0] not in str(refused.value)


def test_lines_may_be_empty_and_end_as_on_windows(file: Path) -> None:
    write(file, "\r\nfirst\r\n\r\nsecond\r\n")
    key = ApiKey(file)
    assert [key.admits(f"Bearer {word}") for word in ("first", "second", "")] == [True, True, False]


def test_without_the_key_the_api_says_401_as_openai_does_and_the_admin_port_answers(
    own_front: Callable[..., Front], file: Path
) -> None:
    front = own_front(api_key_file=file)
    with pytest.raises(openai.AuthenticationError, match="Incorrect API key provided") as refused:
        front.client("guess").models.list()
    assert (refused.value.status_code, refused.value.code) == (401, "invalid_api_key")
    assert refused.value.response.headers["www-authenticate"] == "Bearer"
    assert "guess" not in refused.value.response.text
    for path in (
        "/v1/models",
        "/v1/chat/completions",
        "/v1/nothing",
        "/",
        "/metrics",
        "/version/",
        "/load",
        "//health",
    ):
        assert httpx2.get(front.http + path).status_code == 401
    for path in ("/tokenize", "/detokenize"):
        assert front.post(path, {}).status_code == 401
    assert [httpx2.get(front.http + path).status_code for path in ("/health", "/ping", "/health/")] == [200] * 3
    own = httpx2.get(front.http + "/metrics", headers={"authorization": "Bearer first"})
    assert (own.status_code, "graphpod_requests_total" in own.text) == (200, True)
    assert front.client("first").models.retrieve("echo").id == "echo"
    assert [front.get(path).status_code for path in ("/livez", "/startupz", "/readyz", "/warmup", "/metrics")] == [
        200
    ] * 5
    write(file, "second\n")
    assert front.client("second").models.retrieve("echo").id == "echo"
    with pytest.raises(openai.AuthenticationError):
        front.client("first").models.list()
    assert "first" not in front.log.read_text()


def test_a_file_without_a_key_ends_the_start_with_its_name(tmp_path: Path, file: Path) -> None:
    write(file, "")
    config = engine_json(tmp_path, write_model(tmp_path / "model"))
    ports = ("--host=127.0.0.1", "--http-port=0", "--admin-port=0")
    command = [sys.executable, "-m", "graphpod_runtime.cli", "serve", f"--config={config}", f"--api-key-file={file}"]
    ended = subprocess.run([*command, *ports], capture_output=True, text=True, timeout=180)
    assert ended.returncode == ExitCode.SettingInvalid
    assert f"{file} has no API key" in ended.stderr
