"""Text from tokens: whole characters, nothing past a stop string, a fixed amount of work a token."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

from graphpod_runtime.front.text.detokenize import Detokenizer, StopScanner, TextDetokenizer
from graphpod_runtime.front.text.tokenizer import REPLACEMENT, Tokenizer

from .conftest import byte_tokenizer


def fallback_tokenizer() -> Library:
    """As Llama 2 and Gemma: pieces of text with their leading spaces, and a token a byte for all else."""
    special, pieces = (
        ["<s>", "</s>"],
        ["\u2581", "\u2581a", "a", "b", "\u2581\u2581", "\ufffd", "\u65e5", "\u200d", "\n"],
    )
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    vocabulary = {token: id for id, token in enumerate([*special, *bytes_, *pieces])}
    tokenizer = Library(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    return tokenizer


def metaspace_tokenizer() -> Library:
    """As T5 and many conversions from SentencePiece: a mark for each space, and no bytes."""
    pieces = [
        "<unk>",
        "</s>",
        "\u2581",
        "\u2581a",
        "a",
        "b",
        "\u2581\u2581",
        "\ufffd",
        "\u65e5",
        "\u200d",
        "\U0001f469",
    ]
    tokenizer = Library(models.BPE(vocab={token: id for id, token in enumerate(pieces)}, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    return tokenizer


def made(folder: Path, library: Library) -> Tokenizer:
    folder.mkdir()
    library.save(str(folder / "tokenizer.json"))
    return Tokenizer(folder)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    """A byte-level tokenizer, one that falls back to bytes, and one that has none."""
    folder = tmp_path_factory.mktemp("tokenizers")
    return {
        "bytes": made(folder / "bytes", byte_tokenizer()),
        "fallback": made(folder / "fallback", fallback_tokenizer()),
        "metaspace": made(folder / "metaspace", metaspace_tokenizer()),
    }


ADVERSARIAL = "a b\n日é😀👩\u200d\ufe0f\u0301\U0001f3fd�"
"""Leading spaces, joiners, marks that follow a character, and the character for what is none."""
KINDS = pytest.mark.parametrize("kind", ["bytes", "fallback", "metaspace"])


def text_of(subject: Detokenizer, groups: list[list[int]]) -> str:
    return "".join(subject.feed(group) for group in groups) + subject.flush()


@pytest.mark.parametrize("text", ["plain", "日本語", "a😀b👩‍👩‍👧c", "é", " lead", "x\n\ny"])
def test_a_character_comes_whole_or_not_at_all(both: dict[str, Tokenizer], text: str) -> None:
    subject = both["bytes"].detokenizer()
    ids = both["bytes"].encode(text)
    assert len(ids) == len(text.encode())
    pieces = [subject.feed([token]) for token in ids]
    assert [piece for piece in pieces if piece] == list(text)
    assert subject.flush() == ""


def test_bytes_that_never_become_a_character_show_at_the_end(both: dict[str, Tokenizer]) -> None:
    subject = both["bytes"].detokenizer()
    broken = both["bytes"].encode("a😀")[:-1]
    assert "".join(subject.feed([token]) for token in broken) == "a"
    assert subject.flush() == REPLACEMENT


def test_a_run_of_byte_tokens_comes_with_the_token_that_ends_it(both: dict[str, Tokenizer]) -> None:
    subject = both["fallback"].detokenizer()
    ids = both["fallback"].encode("a😀b")
    assert [subject.feed([token]) for token in ids] == ["a", "", "", "", "", "😀b"]


@KINDS
@given(data=st.data())
def test_the_pieces_of_any_tokens_join_to_one_decode(
    both: dict[str, Tokenizer], kind: str, data: st.DataObject
) -> None:
    tokenizer = both[kind]
    # One beyond the vocabulary too: a model has more rows than its tokenizer has tokens.
    ids = st.lists(st.integers(0, tokenizer._tokenizer.get_vocab_size()), max_size=4)
    groups = data.draw(st.lists(ids, max_size=30))
    assert text_of(tokenizer.detokenizer(), groups) == tokenizer.decode([id for group in groups for id in group])


@KINDS
@given(text=st.text(st.sampled_from(ADVERSARIAL), max_size=40), cut=st.integers(0, 200))
def test_the_tokens_of_a_text_in_parts_and_broken_off_join_to_one_decode(
    both: dict[str, Tokenizer], kind: str, text: str, cut: int
) -> None:
    tokenizer = both[kind]
    ids = tokenizer.encode(text)[cut % 3 :][: cut or None]
    assert text_of(tokenizer.detokenizer(), [[id] for id in ids]) == tokenizer.decode(ids)


RUNS = {
    "a byte that is no character": "<0xFF>",
    "U+FFFD itself": "\ufffd",
    "special tokens": "</s>",
    "words": "\u2581a",
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_every_token_is_decoded_a_fixed_number_of_times(both: dict[str, Tokenizer], run: str) -> None:
    tokenizer, decoded = both["fallback"], 0

    def decode(ids: list[int]) -> str:
        nonlocal decoded
        decoded += len(ids)
        return tokenizer.decode(ids)

    subject = TextDetokenizer(decode, tokenizer._holds, tokenizer._is_text)
    ids = [tokenizer._tokenizer.token_to_id(run)] * 4000
    assert text_of(subject, [[id] for id in ids]) == tokenizer.decode(ids)
    assert decoded <= 4 * len(ids)


@pytest.mark.parametrize("run", ["ÿ", "Ã", "<end>", "a"])
def test_a_byte_level_token_is_read_once(both: dict[str, Tokenizer], run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, read = both["bytes"], 0
    bytes_of = tokenizer._text_bytes

    def counted(id: int) -> bytes:
        nonlocal read
        read += 1
        return bytes_of(id)

    monkeypatch.setattr(tokenizer, "_text_bytes", counted)
    ids = [tokenizer._tokenizer.token_to_id(run)] * 4000
    subject = tokenizer.detokenizer()
    pieces = [subject.feed([id]) for id in ids]
    assert "".join(pieces) + subject.flush() == tokenizer.decode(ids)
    assert read == len(ids)
    if run == "ÿ":
        assert pieces == [REPLACEMENT] * len(ids)  # nothing is held back that is known to be no character


def scan(pieces: list[str], *stops: str) -> tuple[str, bool]:
    """The text that is given away, and whether it was cut."""
    subject, given_away = StopScanner(stops), ""
    for piece in pieces:
        text, stopped = subject.feed(piece)
        given_away += text
        if stopped:
            return given_away, True
    return given_away + subject.flush(), False


def test_the_longest_stop_string_that_ended_the_text_is_named() -> None:
    subject = StopScanner(("d", "nd", "xnd", "no"))
    assert (subject.feed("the e"), subject.found) == (("the e", False), None)
    assert (subject.feed("nd no"), subject.found) == (("", True), "nd")


@pytest.mark.parametrize(
    ("pieces", "stops", "expected"),
    [
        (["one", " END", " two"], ("END",), ("one ", True)),
        (["one E", "N", "D two"], ("END",), ("one ", True)),
        (["one E", "N", "T two"], ("END",), ("one ENT two", False)),
        (["EEN", "D"], ("END",), ("E", True)),
        (["one EN"], ("END",), ("one EN", False)),
        (["a stop, a halt"], ("halt", "stop"), ("a ", True)),
        (["日", "本", "語"], ("本語",), ("日", True)),
        (["nothing"], (), ("nothing", False)),
        (["aabaa", "b!"], ("aabaab",), ("", True)),
        (["abcd"], ("bcd", "abcd", "cd"), ("", True)),
        (["abcdef"], ("abcdef", "cd"), ("ab", True)),
    ],
)
def test_text_ends_before_the_first_stop_string(
    pieces: list[str], stops: tuple[str, ...], expected: tuple[str, bool]
) -> None:
    assert scan(pieces, *stops) == expected


@given(
    st.text("ab", max_size=30),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.integers(0, 30), max_size=6),
)
def test_where_the_pieces_break_does_not_matter(text: str, stops: list[str], cuts: list[int]) -> None:
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in itertools.pairwise(edges)]
    found = [(text.find(stop) + len(stop), -len(stop)) for stop in stops if stop in text]
    end, length = min(found, default=(0, 0))
    assert scan(pieces, *stops) == ((text[: end + length], True) if found else (text, False))


class Letter(str):
    """A character that counts what it is compared with."""

    compared = 0
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        Letter.compared += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


class Counted(str):
    """A stop string of such characters."""

    __slots__ = ()

    def __getitem__(self, at: Any) -> str:
        return Letter(super().__getitem__(at))


def test_a_long_stop_string_costs_a_few_comparisons_a_character() -> None:
    subject = StopScanner([Counted("a" * 1023 + "b")])
    Letter.compared = 0
    for _ in range(5000):
        assert subject.feed("a")[1] is False
    assert Letter.compared <= 4 * 5000
