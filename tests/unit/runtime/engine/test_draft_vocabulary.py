"""A draft model must mean the same texts by its tokens: its vocabulary is compared by content."""

import json
from pathlib import Path
from typing import Any

import pytest

from graphpod_policy import ExitCode
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.engine.start.drafting.vocabulary import TOKENIZER, first_difference

WORDS = {"a": 0, "b": 1, "c": 2}


def folder(path: Path, vocab: object, *added: tuple[int, str]) -> Path:
    path.mkdir()
    tokens = [{"id": id, "content": text, "special": True} for id, text in added]
    (path / TOKENIZER).write_text(json.dumps({"model": {"vocab": vocab}, "added_tokens": tokens}))
    return path


@pytest.mark.parametrize(
    ("vocab", "added"),
    [(WORDS, [(3, "<end>")]), ([["a", -1.0], ["b", -2.0], ["c", 0.0]], [(3, "<end>")]), (WORDS | {"<end>": 3}, [])],
)
def test_the_same_texts_are_the_same_vocabulary_however_they_are_written(
    tmp_path: Path, vocab: object, added: list[tuple[int, str]]
) -> None:
    ours = folder(tmp_path / "large", WORDS, (3, "<end>"))
    assert first_difference(ours, folder(tmp_path / "small", vocab, *added)) is None


@pytest.mark.parametrize(
    ("vocab", "added", "token", "texts"),
    [
        ({"a": 0, "c": 1, "b": 2}, [(3, "<end>")], 1, ("'c'", "'b'")),
        (WORDS, [(3, "<eot>")], 3, ("'<eot>'", "'<end>'")),
        (WORDS, [], 3, ("none", "'<end>'")),
        (WORDS, [(3, "<end>"), (4, "<pad>")], 4, ("'<pad>'", "none")),
    ],
)
def test_the_first_difference_is_named(
    tmp_path: Path, vocab: Any, added: list[tuple[int, str]], token: int, texts: tuple[str, str]
) -> None:
    ours = folder(tmp_path / "large", WORDS, (3, "<end>"))
    assert first_difference(ours, folder(tmp_path / "small", vocab, *added)) == (
        f"token {token} is {texts[0]} in the vocabulary of small, and {texts[1]} in that of large; "
        "use a draft model with the same tokenizer"
    )


def test_without_a_tokenizer_there_is_nothing_to_compare(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    assert first_difference(folder(tmp_path / "large", WORDS), tmp_path / "small") is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"model": {"vocab": 3}}', '{"model": {"vocab": [3]}}', "[" * 9999])
def test_a_broken_tokenizer_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    ours, small = folder(tmp_path / "large", WORDS), tmp_path / "small"
    small.mkdir()
    (small / TOKENIZER).write_text(text)
    with pytest.raises(StartFailure, match=r"small/tokenizer\.json: no vocabulary can be read") as caught:
        first_difference(ours, small)
    assert caught.value.code is ExitCode.ModelInvalid
