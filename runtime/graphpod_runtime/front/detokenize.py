"""From a stream of tokens to a stream of text: whole characters only, nothing past a stop string."""

from collections.abc import Callable

from graphpod_runtime.front.tokenizer import REPLACEMENT


class Detokenizer:
    """Text of one request, token by token.

    A character may span tokens: until its last byte has come the decoder shows U+FFFD, which is held back. A token's
    text may depend on the ones before it (a leading space), so each decode starts at the tokens of the previous
    piece. All pieces joined, with `flush`, equal one decode of all tokens.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._start = 0
        """First token of the window that is decoded."""
        self._settled = 0
        """End of the tokens whose text has been given; the window's context."""
        self._given = 0
        """Characters of the window's text that have been given."""

    def feed(self, ids: list[int]) -> str:
        """The text that `ids` complete."""
        self._ids += ids
        text = self._decode(self._ids[self._start :])
        stable = text.rstrip(REPLACEMENT)
        piece = stable[self._given :]
        if stable == text:
            self._start, self._settled = self._settled, len(self._ids)
            self._given = len(self._decode(self._ids[self._start : self._settled]))
        else:
            self._given = max(self._given, len(stable))
        return piece

    def flush(self) -> str:
        """The rest at the end of the request: bytes that never became a character show as U+FFFD."""
        text = self._decode(self._ids[self._start :])
        piece, self._given = text[self._given :], len(text)
        return piece


class StopScanner:
    """Cuts a stream of text before the first stop string, wherever its pieces break."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""

    def feed(self, piece: str) -> tuple[str, bool]:
        """The text that is safe to give, and whether a stop string was found (the request ends there).

        A tail that may be the beginning of a stop string is held back.
        """
        text = self._held + piece
        found = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self._held = ""
            return text[: min(found)], True
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def flush(self) -> str:
        """What was held back, at the end of the request."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest tail of `text` that begins `stop`."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
