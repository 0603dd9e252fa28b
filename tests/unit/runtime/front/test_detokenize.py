"""Text from tokens: whole characters, and nothing past a stop string."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_runtime.front.detokenize import REPLACEMENT, Detokenizer, StopScanner

from .conftest import byte_tokenizer

TOKENIZER = byte_tokenizer()


def decode(ids: list[int]) -> str:
    return TOKENIZER.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("text", ["plain", "日本語", "a😀b👩‍👩‍👧c", "é", " lead", "x\n\ny"])
def test_a_character_comes_whole_or_not_at_all(text: str) -> None:
    subject = Detokenizer(decode)
    ids = TOKENIZER.encode(text).ids
    assert len(ids) == len(text.encode())
    pieces = [subject.feed([token]) for token in ids]
    assert not any(REPLACEMENT in piece for piece in pieces)
    assert [piece for piece in pieces if piece] == list(text)
    assert subject.flush() == ""


def test_bytes_that_never_become_a_character_show_at_the_end() -> None:
    subject = Detokenizer(decode)
    broken = TOKENIZER.encode("a😀").ids[:-1]
    assert "".join(subject.feed([token]) for token in broken) == "a"
    assert subject.flush() == REPLACEMENT


@given(st.lists(st.lists(st.integers(0, 256), max_size=4), max_size=30))
def test_the_pieces_of_any_tokens_join_to_one_decode(groups: list[list[int]]) -> None:
    subject = Detokenizer(decode)
    text = "".join(subject.feed(group) for group in groups) + subject.flush()
    assert text == decode([token for group in groups for token in group])


def scan(pieces: list[str], *stops: str) -> tuple[str, bool]:
    """The text that is given away, and whether it was cut."""
    subject, given_away = StopScanner(stops), ""
    for piece in pieces:
        text, stopped = subject.feed(piece)
        given_away += text
        if stopped:
            return given_away, True
    return given_away + subject.flush(), False


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
    ],
)
def test_text_ends_before_the_first_stop_string(
    pieces: list[str], stops: tuple[str, ...], expected: tuple[str, bool]
) -> None:
    assert scan(pieces, *stops) == expected


@given(st.text("ab", max_size=30), st.text("ab", min_size=1, max_size=4), st.lists(st.integers(0, 30), max_size=6))
def test_where_the_pieces_break_does_not_matter(text: str, stop: str, cuts: list[int]) -> None:
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in itertools.pairwise(edges)]
    found = text.find(stop)
    assert scan(pieces, stop) == ((text[:found], True) if found >= 0 else (text, False))
