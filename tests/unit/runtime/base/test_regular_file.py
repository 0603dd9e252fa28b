"""What stands among a model's files and is none: whoever opens it may wait for ever, so it is refused by its path.

Each reader is called by a thread that a test gives up on: one that opens a named pipe never comes back.
"""

import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from graphpod_policy import ExitCode
from graphpod_runtime.api.local_config import LocalError, _look_at
from graphpod_runtime.base.errors import ModelInvalid
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.files import regular_file
from graphpod_runtime.base.files.json_file import JsonFileInvalid, json_object
from graphpod_runtime.base.files.regular_file import open_regular, read_if_there, read_regular
from graphpod_runtime.convert import ConvertError
from graphpod_runtime.convert.source import Source
from graphpod_runtime.engine.before_torch import _read_ahead
from graphpod_runtime.engine.sleep.refill import files_in
from graphpod_runtime.engine.start.drafting.vocabulary import first_difference
from graphpod_runtime.front.text.tokenizer import Tokenizer, TokenizerInvalid
from graphpod_runtime.grammar.vocabulary import GrammarsUnavailable, read_vocabulary
from graphpod_runtime.models.by_transformers.assembly import config_of
from graphpod_runtime.models.checkpoint import tensors

from ..front.conftest import write_model

WAIT_SECONDS = 60.0


def in_time(work: Callable[[], object]) -> object:
    """What `work` returns or raises, unless it waits for ever."""
    done: list[object] = []

    def run() -> None:
        try:
            done.append(work())
        except Exception as error:  # noqa: BLE001 (the test looks at it)
            done.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS)
    assert done, "it waits for ever"
    if isinstance(done[0], Exception):
        raise done[0]
    return done[0]


def socket_at(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


def link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (os.mkfifo, "a named pipe"),
        (link_to_pipe, "a named pipe"),
        (socket_at, "a socket"),
        (link_to_device, "a character device"),
        (Path.mkdir, "a folder"),
    ],
)
@pytest.mark.parametrize("reader", [read_regular, open_regular, read_if_there])
def test_what_is_no_file_is_named(
    tmp_path: Path,
    make: Callable[[Path], None],
    kind: str,
    reader: Callable[[Path], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket has 107 bytes at most
    make(path := Path("config.json"))
    with pytest.raises(OSError, match=f"it is {kind}, not a regular file"):
        in_time(lambda: reader(path))


def test_a_link_is_followed_as_in_hugging_face_s_cache(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs/1").write_text("{}")
    (tmp_path / "config.json").symlink_to("blobs/1")
    assert read_regular(tmp_path / "config.json") == b"{}"
    assert json_object(tmp_path / "config.json") == {}


def test_a_file_without_an_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (path := tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate(regular_file.MOST_TEXT + 1)
    with pytest.raises(OSError, match="more than 1073741824"):
        read_regular(path)
    with pytest.raises(TokenizerInvalid, match="more than 1073741824"):
        Tokenizer(tmp_path)


Reader = tuple[str, Callable[[Path], object], type[Exception]]
READERS: list[Reader] = [
    ("config.json", lambda folder: json_object(folder / "config.json"), JsonFileInvalid),
    ("config.json", config_of, ModelInvalid),
    ("config.json", _look_at, LocalError),
    ("config.json", files_in, ModelInvalid),
    ("generation_config.json", files_in, ModelInvalid),
    ("model.safetensors", lambda folder: list(tensors(folder)), ModelInvalid),
    ("model.safetensors.index.json", lambda folder: list(tensors(folder)), ModelInvalid),
    ("tokenizer.json", Tokenizer, TokenizerInvalid),
    ("tokenizer_config.json", Tokenizer, TokenizerInvalid),
    ("chat_template.jinja", Tokenizer, TokenizerInvalid),
    ("tokenizer.json", read_vocabulary, GrammarsUnavailable),
    ("tokenizer.json", lambda folder: first_difference(folder, folder), StartFailure),
    ("model.gguf", lambda folder: Source(folder / "model.gguf"), ConvertError),
]


@pytest.mark.parametrize(("name", "reader", "error"), READERS, ids=lambda one: getattr(one, "__name__", None))
def test_a_named_pipe_among_a_model_s_files_is_refused_by_its_path(
    tmp_path: Path, name: str, reader: Callable[[Path], object], error: type[Exception]
) -> None:
    write_model(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(error) as refused:
        in_time(lambda: reader(tmp_path))
    assert f"{name}" in str(refused.value)
    assert "it is a named pipe" in str(refused.value)


@pytest.mark.parametrize("index", [None, {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}])
def test_one_of_several_files_of_weights_is_a_named_pipe(tmp_path: Path, index: object) -> None:
    if index is not None:
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "one.safetensors").touch()
    os.mkfifo(tmp_path / "two.safetensors")
    with pytest.raises(ModelInvalid, match=r"two\.safetensors: cannot be read: it is a named pipe"):
        in_time(lambda: list(tensors(tmp_path)))
    in_time(lambda: _read_ahead(tmp_path))  # the start's other reader of weights, which reports nothing


def test_a_link_to_weights_that_are_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("../blobs/1")
    with pytest.raises(ModelInvalid, match=r"model\.safetensors: is a link to a file that is not there"):
        list(tensors(tmp_path))


def test_a_config_that_is_nested_too_deeply_ends_the_command_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"a":' * 100_000)
    with pytest.raises(LocalError, match=r"config\.json") as refused:
        _look_at(tmp_path)
    assert refused.value.code is ExitCode.ModelInvalid
