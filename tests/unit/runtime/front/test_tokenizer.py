"""Tokenizer and chat template from a folder."""

import json
from pathlib import Path

import pytest

from graphpod_runtime.front.tokenizer import TemplateError, Tokenizer, TokenizerInvalid

from .conftest import write_model

CHATML = (
    "{%- for message in messages %}\n<|{{ message.role }}|>{{ message['content'] | trim }}{{ eos_token }}\n"
    "{%- endfor %}\n{%- if add_generation_prompt %}<|assistant|>{% endif %}"
)


def chat(folder: Path, template: str | None, *messages: dict[str, str]) -> str:
    tokenizer = Tokenizer(write_model(folder, template))
    return tokenizer._tokenizer.decode(tokenizer.encode_chat(list(messages)), skip_special_tokens=False)


def test_the_template_sees_messages_special_tokens_and_where_to_begin(tmp_path: Path) -> None:
    text = chat(tmp_path, CHATML, {"role": "system", "content": " be brief "}, {"role": "user", "content": "hi"})
    assert text == "<|system|>be brief<end><|user|>hi<end><|assistant|>"


def test_a_template_in_a_file_of_its_own_wins(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("file: {{ messages[0].content }}")
    assert chat(tmp_path, CHATML, {"role": "user", "content": "hi"}) == "file: hi"


def test_a_template_may_refuse(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="roles must alternate"):
        chat(tmp_path, "{{ raise_exception('roles must alternate') }}", {"role": "user", "content": "x"})


def test_a_model_without_a_template_points_to_completions(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="/v1/completions"):
        chat(tmp_path, None, {"role": "user", "content": "x"})


def test_a_template_cannot_reach_the_interpreter(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="unsafe"):
        chat(tmp_path, "{{ messages.__class__.__mro__ }}", {"role": "user", "content": "x"})


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("tokenizer.json", "{}", "is no tokenizer"),
        ("tokenizer_config.json", "{", "is not JSON"),
        ("tokenizer_config.json", "[]", "no JSON object"),
        ("tokenizer_config.json", json.dumps({"chat_template": "{% for %}"}), "is not jinja2"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, content: str, words: str) -> None:
    (write_model(tmp_path) / name).write_text(content)
    with pytest.raises(TokenizerInvalid, match=words):
        Tokenizer(tmp_path)
