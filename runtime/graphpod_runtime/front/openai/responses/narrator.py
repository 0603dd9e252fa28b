"""From the parts of an assistant's turn to the items and events of a response.

Whole answers and streams are made by the same steps.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec.structs import replace

from graphpod_runtime.front.openai.responses.events import (
    ArgumentsDelta,
    ArgumentsDone,
    Event,
    ItemEvent,
    PartEvent,
    ReasoningDelta,
    ReasoningDone,
    ResponseEvent,
    TextDelta,
    TextDone,
)
from graphpod_runtime.front.openai.responses.reply import (
    FunctionCallItem,
    IncompleteDetails,
    OutputItem,
    OutputMessage,
    OutputText,
    ReasoningItem,
    ReasoningText,
    Response,
    ResponseError,
    ResponseUsage,
    TextLogprob,
)
from graphpod_runtime.front.openai.turn.reader import TurnPiece
from graphpod_runtime.front.requests.errors import ApiError
from graphpod_runtime.front.text.logprobs import TokenInText
from graphpod_runtime.front.text.turn.parts import CallArguments, CallBegun, Content, Part, Reasoning

LogprobsOf = Callable[[Sequence[TokenInText]], list[TextLogprob]]

RATE = "rate_limit_exceeded"
"""OpenAI's word for a response that failed because others had the room."""


class _Kind(StrEnum):
    """Of items; the word begins their ids."""

    Message = "msg"
    Reasoning = "rs"
    Call = "fc"


@dataclass(slots=True)
class _Open:
    """The item that grows."""

    kind: _Kind
    id: str
    call: CallBegun | None = None
    texts: list[str] = field(default_factory=list)
    logprobs: list[TextLogprob] = field(default_factory=list)

    def item(self, status: str) -> OutputItem:
        """The item as it is now; `in_progress` ones are empty, their deltas follow."""
        text = "" if status == "in_progress" else "".join(self.texts)
        if self.call is not None:
            return FunctionCallItem(self.id, status, self.call.id, self.call.name, text)
        if self.kind is _Kind.Reasoning:
            return ReasoningItem(self.id, status, [] if status == "in_progress" else [ReasoningText(text)])
        return OutputMessage(self.id, status, [] if status == "in_progress" else [OutputText(text, self.logprobs)])

    def part(self, *, whole: bool) -> OutputText | ReasoningText:
        """The item's one content part, as added or as done."""
        text = "".join(self.texts) if whole else ""
        if self.kind is _Kind.Reasoning:
            return ReasoningText(text)
        return OutputText(text, self.logprobs if whole else [])


class Narrator:
    """One response on its way. Each step returns its events; `response` is the state after them."""

    def __init__(
        self, response: Response, logprobs_of: LogprobsOf | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """`response` has nothing of its answer yet; `logprobs_of` names tokens where log-probabilities are sent."""
        self.response = response
        self._logprobs_of, self._clock = logprobs_of, clock
        self._sequence = -1
        self._open: _Open | None = None
        self._items: list[OutputItem] = []
        self._said: list[TokenInText] = []
        """Tokens whose text no message has carried yet."""

    def created(self) -> list[Event]:
        """The response begins."""
        self.response = replace(self.response, status="in_progress")
        kinds = "response.created", "response.in_progress"
        return [ResponseEvent(kind, self._next(), self.response) for kind in kinds]

    def take(self, piece: TurnPiece) -> list[Event]:
        """What a piece of the turn brings. The piece that ends the turn closes the last item."""
        events: list[Event] = []
        self._said += piece.said
        for part in piece.parts:
            events += self._part(part)
        if piece.finish is not None:
            if self._open is None and not self._items:
                events += self._begin(_Kind.Message)
            incomplete = piece.finish == "length"
            events += self._close("incomplete" if incomplete else "completed")
            if incomplete:
                details = IncompleteDetails("max_output_tokens")
                self.response = replace(self.response, status="incomplete", incomplete_details=details)
            else:
                self.response = replace(self.response, status="completed", completed_at=int(self._clock()))
        return events

    def ended(self, usage: ResponseUsage) -> list[Event]:
        """The response as it ended, with its token counts."""
        self.response = replace(self.response, output=self._items, usage=usage)
        return [ResponseEvent(f"response.{self.response.status}", self._next(), self.response)]

    def failed(self, error: ApiError) -> list[Event]:
        """The response as far as it came, and why it ends there."""
        code = RATE if error.status == 503 else "server_error"
        self._stop("failed")
        self.response = replace(self.response, error=ResponseError(code, error.message))
        return [ResponseEvent("response.failed", self._next(), self.response)]

    def cancelled(self) -> None:
        """The client went, or cancelled it. There is no event for that."""
        self._stop("cancelled")

    def _stop(self, status: str) -> None:
        if self._open is not None:
            self._items.append(self._open.item("incomplete"))
            self._open = None
        self.response = replace(self.response, status=status, output=self._items)

    def _part(self, part: Part) -> Iterable[Event]:
        match part:
            case Content(text):
                yield from self._within(_Kind.Message)
                yield from self._text(text)
            case Reasoning(text):
                self._said.clear()
                yield from self._within(_Kind.Reasoning)
                yield from self._text(text)
            case CallBegun():
                self._said.clear()
                yield from self._close("completed")
                yield from self._begin(_Kind.Call, part)
            case CallArguments(text=text):
                self._said.clear()
                yield from self._text(text)

    def _within(self, kind: _Kind) -> Iterable[Event]:
        """An item of this kind is open."""
        if self._open is None or self._open.kind is not kind:
            yield from self._close("completed")
            yield from self._begin(kind)

    def _begin(self, kind: _Kind, call: CallBegun | None = None) -> Iterable[Event]:
        at = len(self._items)
        # One id for each item of a response, without another draw of random bits.
        self._open = _Open(kind, f"{kind}_{self.response.id.partition('_')[2]}{at:04x}", call)
        yield ItemEvent("response.output_item.added", self._next(), at, self._open.item("in_progress"))
        if kind is not _Kind.Call:
            part = self._open.part(whole=False)
            yield PartEvent("response.content_part.added", self._next(), self._open.id, at, 0, part)

    def _text(self, text: str) -> Iterable[Event]:
        item, at = self._open, len(self._items)
        assert item is not None, "arguments come after the beginning of their call"
        if not text:
            return
        item.texts.append(text)
        if item.kind is _Kind.Call:
            yield ArgumentsDelta(self._next(), item.id, at, text)
        elif item.kind is _Kind.Reasoning:
            yield ReasoningDelta(self._next(), item.id, at, 0, text)
        else:
            logprobs = self._named()
            item.logprobs += logprobs
            yield TextDelta(self._next(), item.id, at, 0, text, logprobs)

    def _close(self, status: str) -> Iterable[Event]:
        item, at = self._open, len(self._items)
        if item is None:
            return
        text = "".join(item.texts)
        if item.call is not None:
            yield ArgumentsDone(self._next(), item.id, at, item.call.name, text)
        elif item.kind is _Kind.Reasoning:
            yield ReasoningDone(self._next(), item.id, at, 0, text)
        else:
            item.logprobs += self._named()
            yield TextDone(self._next(), item.id, at, 0, text, item.logprobs)
        if item.kind is not _Kind.Call:
            yield PartEvent("response.content_part.done", self._next(), item.id, at, 0, item.part(whole=True))
        done = item.item(status)
        yield ItemEvent("response.output_item.done", self._next(), at, done)
        self._items.append(done)
        self._open = None

    def _named(self) -> list[TextLogprob]:
        said, self._said = self._said, []
        return [] if self._logprobs_of is None or not said else self._logprobs_of(said)

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence
