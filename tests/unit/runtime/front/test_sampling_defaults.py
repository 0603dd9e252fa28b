"""What a model's makers want, unless a request says otherwise."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphpod_policy import SamplingSource
from graphpod_runtime.front.openai.request import CompletionRequest
from graphpod_runtime.front.openai.sampling.sampling_defaults import FILE, DefaultsInvalid, SamplingDefaults
from graphpod_runtime.front.openai.service import Service
from graphpod_runtime.front.requests.admission import Admission
from graphpod_runtime.front.text.turn.family import Family


def written(folder: Path, content: Any) -> Path:
    (folder / FILE).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def test_without_the_file_or_its_fields_they_are_openais(tmp_path: Path) -> None:
    assert SamplingDefaults.read(tmp_path) == SamplingDefaults(1.0, 1.0, 0)
    assert SamplingDefaults.read(written(tmp_path, {"eos_token_id": [1], "top_k": None})) == SamplingDefaults()


def test_they_are_those_of_the_file(tmp_path: Path) -> None:
    folder = written(tmp_path, {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "do_sample": True})
    assert SamplingDefaults.read(folder) == SamplingDefaults(0.6, 0.95, 20)
    assert SamplingDefaults.read(written(tmp_path, {"top_k": -1})).top_k == 0


@pytest.mark.parametrize(
    "content",
    ["{", "[]", "", {"temperature": [0.6]}, {"temperature": "hot"}, {"top_p": 0}, {"top_k": True}, {"top_k": 2.5}],
)
def test_a_value_that_no_request_could_have_names_the_file(tmp_path: Path, content: Any) -> None:
    with pytest.raises(DefaultsInvalid, match=FILE):
        SamplingDefaults.read(written(tmp_path, content))


def test_a_file_that_cannot_be_read_is_named_and_not_taken_for_an_absent_one(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.mkdir()
    with pytest.raises(DefaultsInvalid, match=f"{FILE} cannot be read: it is a folder, not a regular file"):
        SamplingDefaults.read(tmp_path)
    path.rmdir()
    path.symlink_to(path)
    with pytest.raises(DefaultsInvalid, match=f"{FILE} cannot be read: Too many levels of symbolic links"):
        SamplingDefaults.read(tmp_path)
    path.unlink()
    path.symlink_to(tmp_path / "blobs" / "gone")
    with pytest.raises(DefaultsInvalid, match=f"{FILE} cannot be read: it is a link to a file that is not there"):
        SamplingDefaults.read(tmp_path)


def test_openais_are_taken_where_the_service_says_so_whatever_the_file_holds(tmp_path: Path) -> None:
    assert SamplingDefaults.read(written(tmp_path, "{"), SamplingSource.OpenAI) == SamplingDefaults(1.0, 1.0, 0)


@pytest.mark.parametrize("asked", [{}, {"temperature": 1.5}, {"top_p": 0.5, "top_k": 0}])
def test_a_request_goes_before_them(asked: dict[str, Any]) -> None:
    defaults = SamplingDefaults(0.6, 0.95, 20)
    status: Any = SimpleNamespace(context_tokens=100, vocabulary=257)
    none: Any = None
    service = Service(status, none, none, none, Admission(0), defaults, none, Family())
    request = CompletionRequest.model_validate({"model": "echo", "prompt": "x"} | asked)
    options = service.generation(request, [[1]], 5, param="prompt", received=0.0).options
    drawn = {"temperature": options.temperature, "top_p": options.top_p, "top_k": options.top_k}
    assert drawn == {"temperature": 0.6, "top_p": 0.95, "top_k": 20} | asked
