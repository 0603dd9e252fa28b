"""The files of a model's folder, whose author may write anything: read, or refused by one error each."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphpod_runtime.base.errors import ModelInvalid
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.files.json_file import JsonFileInvalid, json_object
from graphpod_runtime.engine.sleep.refill import files_in
from graphpod_runtime.engine.start.drafting.vocabulary import first_difference
from graphpod_runtime.models.checkpoint_files import files_of
from graphpod_runtime.models.config_json import eos_ids, read_declared, shape_of
from tests.scribbles import DEEP, LONG, LONGEST_MESSAGE, put, read_or, scribbled
from tests.unit.policy.test_scribbled_models import CONFIGS

LLAMA = CONFIGS["llama"]
NO_FOLDER = Path("/nowhere")


@given(scribbled(*CONFIGS.values()).filter(lambda config: isinstance(config, dict)), st.booleans())
@example(put(LLAMA, ("num_attention_heads",), 0), False)
@example(put(LLAMA, ("hidden_size",), float("inf")), False)
@example(put(LLAMA, ("num_hidden_layers",), 1 << 63), False)
@example(put(CONFIGS["phi3"], ("rope_scaling", "original_max_position_embeddings"), 1), False)
def test_any_field_of_a_config_may_hold_anything(config: Any, quantize: bool) -> None:
    with read_or(ModelInvalid):
        assert 0 < shape_of(NO_FOLDER, config, quantize).layers <= 4096


@pytest.fixture(scope="module")
def folder() -> Any:
    with TemporaryDirectory() as made:
        yield Path(made)


@pytest.mark.parametrize("text", [DEEP, '{"a":' * 50_000, LONG, "\udcff", "", "nul", "[]", "5"])
def test_a_file_that_holds_no_object_is_refused_by_its_path(folder: Path, text: str) -> None:
    path = folder / "config.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(JsonFileInvalid, match=str(path)):
        json_object(path)
    with pytest.raises(ModelInvalid):
        read_declared(folder)


@pytest.mark.parametrize("text", [DEEP, '{"a":' * 50_000, LONG, "\udcff", ""])
def test_a_config_that_is_read_again_for_new_weights_is_refused_by_its_path(tmp_path: Path, text: str) -> None:
    (path := tmp_path / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ModelInvalid, match=f"{path}: .*; copy the model again"):
        files_in(tmp_path)


@given(scribbled({"eos_token_id": [1, 2]}, {"eos_token_id": 2}))
@example({"eos_token_id": float("inf")})
def test_the_ends_that_a_folder_names_may_be_anything(folder: Path, config: Any) -> None:
    (folder / "generation_config.json").write_text(json.dumps(config))
    with read_or(ModelInvalid):
        assert all(0 <= one < 1 << 31 for one in eos_ids(folder))


INDEX = {"metadata": {"total_size": 1}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}


def is_listed_or_refused(folder: Path, text: str) -> None:
    (folder / "model.safetensors.index.json").write_text(text)
    for name in INDEX["weight_map"].values():
        (folder / name).touch()
    with read_or(ModelInvalid):
        files = files_of(folder)
        assert files
        assert all(folder in file.parents for file in files)


@pytest.mark.parametrize("text", [DEEP, LONG, "null"])
def test_an_index_that_is_none_is_refused(folder: Path, text: str) -> None:
    is_listed_or_refused(folder, text)


@given(scribbled(INDEX))
@example(put(INDEX, ("weight_map",), {}))
@example(put(INDEX, ("weight_map", "a"), 1))
@example(put(INDEX, ("weight_map", "a"), ["one.safetensors"]))
@example(put(INDEX, ("weight_map", "a"), "../../other.safetensors"))
@example(put(INDEX, ("weight_map", "a"), "\ud800"))
def test_an_index_may_name_anything(folder: Path, index: Any) -> None:
    is_listed_or_refused(folder, json.dumps(index))


BPE = {"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": [{"id": 2, "content": "<end>"}]}
UNIGRAM = {"model": {"vocab": [["a", -1.0], ["b", -2.0]]}, "added_tokens": [{"id": 2, "content": "<end>"}]}


@given(scribbled(BPE, UNIGRAM))
@example(put(BPE, ("model", "vocab", "a"), "0"))
@example(put(BPE, ("added_tokens", 0, "id"), None))
def test_a_vocabulary_may_be_anything(folder: Path, tokenizer: Any) -> None:
    pair = folder / "target", folder / "draft"
    for one, content in zip(pair, (BPE, tokenizer), strict=True):
        one.mkdir(exist_ok=True)
        (one / "tokenizer.json").write_text(json.dumps(content))
    with read_or(StartFailure):
        assert len((first_difference(*pair) or "").encode()) < LONGEST_MESSAGE
