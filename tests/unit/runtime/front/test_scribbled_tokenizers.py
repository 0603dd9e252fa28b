"""A model's tokenizer and what its makers say of it, whose author may write anything: used, or refused by its path."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphpod_runtime.base.known_model import model_of
from graphpod_runtime.front.openai.embeddings.pooler import MODEL, MODULES, POOLING, Pooler
from graphpod_runtime.front.openai.sampling.sampling_defaults import FILE, DefaultsInvalid, SamplingDefaults
from graphpod_runtime.front.text.chat_template import TemplateError
from graphpod_runtime.front.text.tokenizer import Tokenizer, TokenizerInvalid
from tests.scribbles import DEEP, put, read_or, scribbled

from .conftest import write_model

NAMED = [{"name": "default", "template": "{{ bos_token }}{{ messages[0].content }}"}, {"name": "rag", "template": "x"}]
CONFIG: dict[str, Any] = {"bos_token": {"content": "<end>"}, "eos_token": "<end>", "chat_template": NAMED}
TEMPLATE = ("chat_template",)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def is_used_or_refused(folder: Path) -> None:
    with read_or(TokenizerInvalid, TemplateError):
        tokenizer = Tokenizer(folder)
        assert isinstance(tokenizer.decode(tokenizer.encode_chat([{"role": "user", "content": "hi"}])), str)


@given(scribbled(CONFIG, put(CONFIG, TEMPLATE, "{{ messages }}")))
@example(put(CONFIG, TEMPLATE, 5))
@example(put(CONFIG, TEMPLATE, [{"name": "default"}]))
@example(put(CONFIG, TEMPLATE, ["default"]))
@example(put(CONFIG, TEMPLATE, "{{" + "(" * 10_000))
@example(put(CONFIG, TEMPLATE, "{% if x %}" * 2000 + "{% endif %}" * 2000))
@example(put(CONFIG, TEMPLATE, "\ud800"))
@example(put(CONFIG, ("bos_token",), {}))
@example(put(CONFIG, ("bos_token",), [1]))
def test_any_field_of_a_tokenizer_s_config_may_hold_anything(folder: Path, config: Any) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    is_used_or_refused(folder)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"{{ messages", DEEP.encode()], ids=["bytes", "cut", "deep"])
def test_a_file_of_a_template_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    (write_model(tmp_path) / "chat_template.jinja").write_bytes(content)
    is_used_or_refused(tmp_path)


@given(st.data())
def test_any_field_of_a_tokenizer_may_hold_anything(folder: Path, data: st.DataObject) -> None:
    path = folder / "tokenizer.json"
    before = path.read_text()
    try:
        path.write_text(json.dumps(data.draw(scribbled(json.loads(before)))))
        is_used_or_refused(folder)
    finally:
        path.write_text(before)


@given(scribbled({"temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.1, "repetition_penalty": 1.1}))
@example({"temperature": "x" * 5000})
def test_any_default_of_sampling_may_be_anything(folder: Path, content: Any) -> None:
    (folder / FILE).write_text(json.dumps(content))
    with read_or(DefaultsInvalid):
        found = SamplingDefaults.read(folder)
        assert 0 <= found.temperature <= 2


ABOUT = {
    MODULES: [{"idx": 0, "type": "sentence_transformers.models.Pooling"}],
    POOLING: {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False},
    MODEL: {"hidden_size": 8, "is_matryoshka": True, "matryoshka_dimensions": [4], "text_config": {"hidden_size": 8}},
}  # fmt: skip


@given(st.sampled_from(sorted(ABOUT)), st.data())
def test_any_field_about_embeddings_may_hold_anything(folder: Path, name: str, data: st.DataObject) -> None:
    for file, content in ABOUT.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(json.dumps(content))
    (folder / name).write_text(json.dumps(data.draw(scribbled(ABOUT[name]))))
    found = Pooler.read(folder)
    assert len(found.refused) < 1000
    assert all(0 < one < 1 << 31 for one in (*found.dimensions, *([] if found.size is None else [found.size])))


@pytest.mark.parametrize("text", [DEEP, "[]", "null", "\udcff"])
def test_a_front_runs_without_a_config_that_can_be_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    assert model_of(tmp_path) is None
