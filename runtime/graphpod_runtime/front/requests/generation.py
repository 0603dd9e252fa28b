"""From prompts to pieces of text: submits a group of requests, detokenises, cuts at stop strings, measures."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from graphpod_runtime.front.requests.engine_client import EngineClient
from graphpod_runtime.front.requests.errors import engine_error, unavailable
from graphpod_runtime.front.requests.metrics import FrontMetrics
from graphpod_runtime.front.text.detokenize import Detokenizer, StopScanner
from graphpod_runtime.front.text.logprobs import PendingLogprobs, TokenInText, prompt_in_text
from graphpod_runtime.front.text.tokenizer import Tokenizer
from graphpod_runtime.wire.messages import Finished, FinishReason, Submit, Tokens


@dataclass(frozen=True, slots=True)
class Options:
    """How to generate. `max_tokens` is one figure a prompt; temperature 0 is greedy."""

    max_tokens: tuple[int, ...]
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int | None
    stops: tuple[str, ...]
    stop_ids: tuple[int, ...]
    ignore_eos: bool
    logprobs: int | None = None
    """Alternatives beside each token of the answer; None: no log-probabilities."""
    echo: bool = False
    """The answer begins with the prompt, its log-probabilities included where those of the answer are asked for."""


@dataclass(frozen=True, slots=True)
class Piece:
    """New text of choice `index`; `finish` is set on its last piece, `said` where log-probabilities were asked for."""

    index: int
    text: str
    finish: FinishReason | None = None
    said: tuple[TokenInText, ...] = ()


@dataclass(slots=True)
class _Choice:
    """One request of the group on its way."""

    detokenizer: Detokenizer
    stops: StopScanner
    latest: float
    waiting: PendingLogprobs = field(default_factory=PendingLogprobs)
    tokens: int = 0
    echoed: bool = False
    finish: FinishReason | None = None


@dataclass(slots=True)
class Generation:
    """One HTTP request's work, measured from `received`. `completion_tokens` is final when `pieces` has ended."""

    engine: EngineClient
    tokenizer: Tokenizer
    metrics: FrontMetrics
    prompts: Sequence[list[int]]
    options: Options
    received: float
    _choices: list[_Choice] = field(default_factory=list, init=False)

    @property
    def completion_tokens(self) -> int:
        """Tokens generated so far, with the one that stopped a choice."""
        return sum(choice.tokens for choice in self._choices)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(map(len, self.prompts))

    async def pieces(self) -> AsyncIterator[Piece]:
        """Text as it comes, one last piece with `finish` a choice. ApiError 503 when the queue is full, 500 when the
        engine fails. Whoever stops listening closes the iterator: that aborts what is still running.
        """
        self._choices = [
            _Choice(self.tokenizer.detokenizer(), StopScanner(self.options.stops), self.received) for _ in self.prompts
        ]
        self.metrics.accepted(self.prompt_tokens)
        try:
            with self.engine.submit([self._submit(index) for index in range(len(self.prompts))]) as stream:
                while any(choice.finish is None for choice in self._choices):
                    index, event = await stream.next()
                    choice = self._choices[index]
                    if choice.finish is not None:
                        continue
                    if self.options.echo and not choice.echoed and not _failed(event):
                        # Off the loop that answers probes: a prompt has as many tokens as the context.
                        yield await asyncio.to_thread(self._echo, index, event)
                    if isinstance(event, Finished):
                        yield self._finished(index, event)
                        continue
                    if not event.ids:
                        continue
                    self._came(choice, len(event.ids))
                    text, stopped = choice.stops.feed(self._made(choice, event))
                    if stopped:
                        stream.abort(index)
                        self._end(choice, FinishReason.Stop)
                    if text or stopped:
                        yield Piece(index, text, choice.finish, choice.waiting.with_piece(text))
        finally:
            for choice in self._choices:
                if choice.finish is None:
                    self._end(choice, FinishReason.Abort)

    def _submit(self, index: int) -> partial[Submit]:
        options = self.options
        return partial(
            Submit,
            prompt=self.prompts[index],
            max_tokens=options.max_tokens[index],
            temperature=options.temperature,
            top_p=options.top_p,
            top_k=options.top_k,
            min_p=options.min_p,
            seed=options.seed,
            stop_ids=list(options.stop_ids),
            ignore_eos=options.ignore_eos,
            logprobs=options.logprobs,
            prompt_logprobs=options.logprobs if options.echo else None,
        )

    def _echo(self, index: int, event: Tokens | Finished) -> Piece:
        """The prompt again, as the first piece of its answer."""
        choice, logprobs = self._choices[index], event.prompt_logprobs if isinstance(event, Tokens) else []
        text, said = prompt_in_text(self.tokenizer, self.prompts[index], logprobs)
        if self.options.logprobs is not None and not said:  # a prompt of one token has none to tell
            said = (TokenInText(self.prompts[index][0], 0, None),)
        choice.echoed, choice.waiting.base = True, len(text)
        return Piece(index, text, said=said)

    def _made(self, choice: _Choice, event: Tokens) -> str:
        """The characters that new tokens complete; their log-probabilities wait for them."""
        if not event.logprobs:
            return choice.detokenizer.feed(event.ids)
        made = []
        for id, logprob in zip(event.ids, event.logprobs, strict=True):
            made.append(choice.detokenizer.feed([id]))
            choice.waiting.token(logprob, made[-1])
        return "".join(made)

    def _came(self, choice: _Choice, tokens: int) -> None:
        """Counts and times new tokens."""
        now = time.perf_counter()
        if choice.tokens == 0:
            self.metrics.first_token(now - self.received)
        else:
            self.metrics.next_token((now - choice.latest) / tokens)
        choice.latest = now
        choice.tokens += tokens
        self.metrics.generated(tokens)

    def _finished(self, index: int, event: Finished) -> Piece:
        """The last piece of a choice, or the error that ended it."""
        choice = self._choices[index]
        if event.reason is FinishReason.Rejected:
            self._end(choice, event.reason)
            raise unavailable(f"The queue is full: {event.message}. Send the request again.", "queue_full")
        if event.reason not in (FinishReason.Stop, FinishReason.Length):
            self._end(choice, FinishReason.Error)
            raise engine_error(event.message or "the engine gave this request up")
        if event.reason is FinishReason.Stop:
            self._came(choice, 1)  # the stop token was generated, though it is no text
        text, stopped = choice.stops.feed(choice.detokenizer.flush())
        self._end(choice, FinishReason.Stop if stopped else event.reason)
        text = text if stopped else text + choice.stops.flush()
        return Piece(index, text, choice.finish, choice.waiting.with_piece(text, last=not stopped))

    def _end(self, choice: _Choice, reason: FinishReason) -> None:
        choice.finish = reason
        self.metrics.finished(reason, time.perf_counter() - self.received)


def _failed(event: Tokens | Finished) -> bool:
    """Whether the request ended without an answer."""
    return isinstance(event, Finished) and event.reason not in (FinishReason.Stop, FinishReason.Length)
