"""From a stream of tokens to a stream of text: whole characters only, nothing past a stop string.

All pieces joined, with `flush`, equal one decode of all tokens, and no token is decoded more than a fixed number of
times: this runs on the event loop that answers probes. (tokenizers' own DecodeStream decodes everything again for each
token of a run of U+FFFD or of special tokens, and raises an error where bytes only looked like a character.)
"""

import codecs
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol


class Detokenizer(Protocol):
    """Text of one request, token by token. A character may span tokens; it comes whole, with its last one."""

    def feed(self, ids: Sequence[int]) -> str:
        """The text that `ids` complete."""

    def flush(self) -> str:
        """The rest at the end of the request: bytes that never became a character show as U+FFFD."""


class ByteDetokenizer:
    """For byte-level tokenizers: a token is bytes, the text is what they spell."""

    def __init__(self, bytes_of: Callable[[int], bytes]) -> None:
        """`bytes_of` gives a token's bytes, none for what is no text."""
        self._bytes_of = bytes_of
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Sequence[int]) -> str:
        return self._decoder.decode(b"".join(map(self._bytes_of, ids)))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class TextDetokenizer:
    """For tokenizers that decode to text and fall back to byte tokens.

    Of a run of byte tokens one wrong byte makes all U+FFFD, so a run is held until another token ends it. A token's
    text may depend on the one before it (a leading space), so that one is decoded with it.
    """

    def __init__(
        self, decode: Callable[[Sequence[int]], str], holds: Callable[[int], bool], is_text: Callable[[int], bool]
    ) -> None:
        """`holds`: whether a token's text depends on those after it; `is_text`: whether it is text at all."""
        self._decode, self._holds, self._is_text = decode, holds, is_text
        self._before: list[int] = []
        self._run: list[int] = []

    def feed(self, ids: Sequence[int]) -> str:
        made = []
        for id in filter(self._is_text, ids):
            self._run.append(id)
            if not self._holds(id):
                made.append(self.flush())
                self._before = [id]
        return "".join(made)

    def flush(self) -> str:
        text = self._decode([*self._before, *self._run])[len(self._decode(self._before)) :]
        self._run = []
        return text


class NamingDetokenizer:
    """Another one, which writes the names of some special tokens, too."""

    def __init__(self, own: Detokenizer, names: Mapping[int, str]) -> None:
        """`names`: by id."""
        self._own, self._names = own, names

    def feed(self, ids: Sequence[int]) -> str:
        if self._names.keys().isdisjoint(ids):
            return self._own.feed(ids)
        made = []
        for id in ids:
            name = self._names.get(id)
            made.append(self._own.feed([id]) if name is None else self._own.flush() + name)
        return "".join(made)

    def flush(self) -> str:
        return self._own.flush()


class StopScanner:
    """Cuts a stream of text before the stop string that is complete first, wherever the text's pieces break.

    Knuth, Morris and Pratt: each stop string costs a fixed number of steps a character, whatever its length.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [(stop, _fallbacks(stop)) for stop in stops]
        self._matched = [0] * len(stops)
        """Of each stop string, how many of its characters the text ends with."""
        self._held = ""
        self.found: str | None = None
        """The stop string that ended the text."""

    def feed(self, piece: str) -> tuple[str, bool]:
        """The text that is safe to give, and whether a stop string was found (the request ends there).

        A tail that may be the beginning of a stop string is held back.
        """
        if not self._stops:
            return piece, False
        text = self._held + piece
        for at, letter in enumerate(piece, len(self._held) + 1):
            found = self._step(letter)
            if found:
                self._held, self.found = "", text[at - found : at]
                return text[: at - found], True
        keep = max(self._matched)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def flush(self) -> str:
        """What was held back, at the end of the request."""
        held, self._held = self._held, ""
        return held

    def _step(self, letter: str) -> int:
        """The length of the longest stop string that `letter` completes, or 0."""
        found = 0
        for number, (stop, fallbacks) in enumerate(self._stops):
            matched = self._matched[number]
            while matched and stop[matched] != letter:
                matched = fallbacks[matched - 1]
            matched += stop[matched] == letter
            if matched == len(stop):
                found = max(found, matched)
                matched = fallbacks[-1]
            self._matched[number] = matched
        return found


def _fallbacks(stop: str) -> list[int]:
    """For each beginning of `stop`, the length of its longest proper tail that begins `stop` too."""
    fallbacks, matched = [0], 0
    for letter in stop[1:]:
        while matched and stop[matched] != letter:
            matched = fallbacks[matched - 1]
        matched += stop[matched] == letter
        fallbacks.append(matched)
    return fallbacks
