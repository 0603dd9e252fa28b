"""From the pieces of a choice to the parts of an assistant's turn."""

from dataclasses import dataclass
from typing import Protocol

from graphpod_runtime.front.requests.generation import Piece
from graphpod_runtime.front.text.logprobs import TokenInText
from graphpod_runtime.front.text.turn.parts import CallBegun, Content, Part
from graphpod_runtime.wire.messages import FinishReason


@dataclass(frozen=True, slots=True)
class TurnPiece:
    """What is new in the turn of choice `index`. `parts` is empty while text is held that may become a call.
    `finish` is set on the last piece: `stop`, `length` or `tool_calls`. `said` and `ids` are those of Piece.
    """

    index: int
    parts: tuple[Part, ...]
    finish: str | None = None
    said: tuple[TokenInText, ...] = ()
    ids: tuple[int, ...] = ()


class Parser(Protocol):
    """Reads one turn. The parts of all feeds and of the flush do not depend on how the text was cut."""

    def feed(self, text: str) -> list[Part]:
        """The parts that `text` completes."""

    def flush(self) -> list[Part]:
        """The rest, at the end of the turn."""


class TextAlone:
    """The parser of a model without reasoning and a request without tools: all text is content."""

    def feed(self, text: str) -> list[Part]:
        return [Content(text)] if text else []

    def flush(self) -> list[Part]:
        return []


class TurnReader:
    """One choice's turn, piece by piece."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._called = False

    def read(self, piece: Piece) -> TurnPiece:
        """The next piece of the turn."""
        parts = self._parser.feed(piece.text)
        if piece.finish is not None:
            parts += self._parser.flush()
        self._called = self._called or any(isinstance(part, CallBegun) for part in parts)
        finish: str | None = piece.finish
        if piece.finish is FinishReason.Stop and self._called:
            finish = "tool_calls"
        return TurnPiece(piece.index, tuple(parts), finish, piece.said, piece.ids)
