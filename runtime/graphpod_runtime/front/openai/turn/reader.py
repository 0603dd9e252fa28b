"""From the pieces of a generation to the parts of assistants' turns."""

import secrets
import string
from collections.abc import Callable
from dataclasses import dataclass

from graphpod_runtime.front.requests.generation import Generation, Piece
from graphpod_runtime.front.text.logprobs import TokenInText
from graphpod_runtime.front.text.turn.parts import CallBegun, Content, Part, Reasoning
from graphpod_runtime.front.text.turn.turn_parser import TurnForm, TurnParser
from graphpod_runtime.wire.messages import FinishReason

SHORT_ID = string.ascii_letters + string.digits


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


class TurnReader:
    """The turns of one generation's choices, by the generation's `turn`. It counts the generation's tokens of
    reasoning.
    """

    def __init__(self, generation: Generation) -> None:
        self._generation, self._form = generation, generation.turn
        self._choices: dict[int, _Choice] = {}
        self._tags: tuple[int | None, int | None] = (None, None)
        if self._form.reasons:
            generation.reasoning_tokens = 0
            if tags := self._form.reasoning:
                of = generation.tokenizer.id_of
                self._tags = of(tags.opens), of(tags.closes)

    def read(self, piece: Piece) -> TurnPiece:
        """The next piece of its choice's turn."""
        choice = self._choices.get(piece.index)
        if choice is None:
            choice = self._choices[piece.index] = _Choice(self._form)
        parts = choice.read(piece)
        if self._generation.reasoning_tokens is not None:
            self._generation.reasoning_tokens += choice.count(piece.ids, parts, self._tags)
        finish: str | None = piece.finish
        if piece.finish is FinishReason.Stop and choice.called and not self._form.forced:
            finish = "tool_calls"  # OpenAI's word where the model chose to call
        return TurnPiece(piece.index, tuple(parts), finish, piece.said, piece.ids)


class _Choice:
    """One turn on its way."""

    def __init__(self, form: TurnForm) -> None:
        self._parser = None if form.is_text else TurnParser(form, _ids(form))
        self._first_alone = form.single
        self._thinks = form.thinks
        self.called = False

    def read(self, piece: Piece) -> list[Part]:
        if self._parser is None:
            return [Content(piece.text)] if piece.text else []
        parts = self._parser.feed(piece.text)
        if piece.finish is not None:
            parts += self._parser.flush()
        if self._first_alone:
            parts = [part for part in parts if getattr(part, "index", 0) == 0]
        self.called = self.called or any(isinstance(part, CallBegun) for part in parts)
        return parts

    def count(self, ids: tuple[int, ...], parts: list[Part], tags: tuple[int | None, int | None]) -> int:
        """How many of `ids` are reasoning. Tags that are one token each do not count; of tags that are several, those
        that came with reasoning do.
        """
        if self.called or self._parser is None:
            return 0
        if None in tags:
            return len(ids) if self._parser.reasons or any(isinstance(part, Reasoning) for part in parts) else 0
        counted = 0
        for id in ids:
            if id in tags:
                self._thinks = id == tags[0]
            else:
                counted += self._thinks
        return counted


def _ids(form: TurnForm) -> Callable[[], str]:
    if form.calls is not None and form.calls.short_ids:
        return lambda: "".join(secrets.choice(SHORT_ID) for _ in range(9))
    return lambda: f"call_{secrets.token_hex(12)}"
