"""From prompts to pieces of text: submits a group of requests, detokenises, cuts at stop strings, measures."""

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from graphpod_runtime.front.metrics.exporter import FrontMetrics
from graphpod_runtime.front.requests.engine_stream import Arrived, EngineStream
from graphpod_runtime.front.requests.errors import ApiError, engine_error, invalid, unavailable
from graphpod_runtime.front.requests.open_requests import OpenRequests
from graphpod_runtime.front.requests.request_trace import CURRENT
from graphpod_runtime.front.text.detokenize import Detokenizer, StopScanner
from graphpod_runtime.front.text.logprobs import PendingLogprobs, TokenInText, prompt_in_text
from graphpod_runtime.front.text.tokenizer import Tokenizer
from graphpod_runtime.front.text.turn.turn_parser import TurnForm
from graphpod_runtime.wire.logit_processing import NO_PROCESSING, LogitProcessing
from graphpod_runtime.wire.messages import Finished, FinishReason, Grammar, Logprob, ReasoningLimit, Submit


@dataclass(frozen=True, slots=True)
class Options:
    """How to generate. `max_tokens` is one figure a prompt, 0 for none; temperature 0 is greedy. Choice i answers
    prompt i // choices.
    """

    max_tokens: tuple[int, ...]
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    stops: tuple[str, ...]
    stop_ids: tuple[int, ...]
    ignore_eos: bool
    logprobs: int | None = None
    """Alternatives to each token of the answer; None: no log-probabilities."""
    echo: bool = False
    """The answer begins with the prompt, its log-probabilities included where those of the answer are asked for."""
    token_ids: bool = False
    """Pieces carry the ids of their tokens."""
    salt: str = ""
    """Prefixes are shared among requests of one salt only."""
    priority: int = 0
    """Lower ones are admitted earlier."""
    choices: int = 1
    """Answers to each prompt."""
    seeds: tuple[int | None, ...] = (None,)
    """Of each answer to a prompt; None: a random one."""
    processing: LogitProcessing = NO_PROCESSING
    includes_stop: bool = False
    """The answer holds the string or the token that stopped it."""
    logprob_ids: tuple[int, ...] = ()
    """The alternatives to each token of the answer, instead of the likeliest."""
    echo_logprobs: int | None = None
    """Alternatives to each token of a prompt that is echoed."""
    prompt_logprobs: int | None = None
    """Alternatives to each token of the prompts; None: no log-probabilities of them, but for an echo's."""
    grammar: Grammar | None = None
    """What every answer must be; None: any text."""
    reasoning: ReasoningLimit | None = None
    """Of every answer; None: as much as it likes."""
    shown: frozenset[int] = frozenset()
    """Special tokens whose names are part of the text."""


@dataclass(frozen=True, slots=True)
class Piece:
    """New text of choice `index`; `finish` is set on its last piece, `said` where log-probabilities were asked for,
    `ids` where token ids were: those of all tokens since the piece before. `stop` is the stop string that ended it.
    """

    index: int
    text: str
    finish: FinishReason | None = None
    said: tuple[TokenInText, ...] = ()
    ids: tuple[int, ...] = ()
    stop: str | None = None


@dataclass(slots=True)
class _Choice:
    """One request of the group on its way."""

    prompt_tokens: int
    detokenizer: Detokenizer
    stops: StopScanner
    latest: float
    """When its latest token came; before the first, when the request did."""
    first: float = 0.0
    """When its first token came."""
    waiting: PendingLogprobs = field(default_factory=PendingLogprobs)
    ids: list[int] = field(default_factory=list)
    """Of tokens whose text no piece has carried yet, where they are asked for."""
    tokens: int = 0
    cached: int = 0
    logprob: float = 0.0
    """The sum over its tokens, where log-probabilities are asked for."""
    echoed: bool = False
    finish: FinishReason | None = None


def _nothing() -> None:
    """Whoever collects an answer has room for all of it."""


@dataclass(slots=True)
class Generation:
    """One HTTP request's work, measured from `received`. `completion_tokens` is final when `pieces` has ended."""

    engine: OpenRequests
    tokenizer: Tokenizer
    metrics: FrontMetrics
    prompts: Sequence[list[int]]
    options: Options
    received: float
    overrun: Callable[[], None] = field(default=_nothing, init=False)
    """Called when `pieces` is asked too seldom for what comes; set it before `pieces` begins."""
    abandoned: FinishReason = field(default=FinishReason.Abort, init=False)
    """What counts for choices that have not ended when the iterator is closed."""
    names: Mapping[str, str] = field(default_factory=dict, init=False)
    """By which exemplars name the request; set it before `pieces` begins."""
    prompt_scores: dict[int, list[Logprob]] = field(default_factory=dict, init=False)
    """By prompt, the log-probabilities of its tokens from the second on, once its answer has begun."""
    turn: TurnForm = field(default=TurnForm(), init=False)
    """What the text of its choices may hold."""
    reasoning_tokens: int | None = field(default=None, init=False)
    """Those of `completion_tokens` that were read as reasoning; None for a model without."""
    _choices: list[_Choice] = field(default_factory=list, init=False)
    _submitted: ExitStack | None = field(default=None, init=False)
    """Closing it aborts what still runs."""
    _stream: EngineStream = field(init=False)

    @property
    def completion_tokens(self) -> int:
        """Tokens generated so far, with the one that stopped a choice."""
        return sum(choice.tokens for choice in self._choices)

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that the prefix cache had, known with the first tokens. Of several answers to a prompt the
        first one counts: the others find what that one computed.
        """
        return sum(choice.cached for choice in self._choices[:: self.options.choices])

    def mean_logprob(self, index: int) -> float:
        """Of the tokens of a choice, where log-probabilities were asked for."""
        choice = self._choices[index]
        return choice.logprob / max(1, choice.tokens)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(map(len, self.prompts))

    def begin(self, until: ExitStack) -> None:
        """Puts the requests on their way to the engine, once, and has `until` end them. `pieces` does it where no
        caller has; what a caller does between the two takes no time from the first token.
        """
        if self._submitted is not None:
            return
        self._submitted = ExitStack()
        until.callback(self._end_all)
        self._choices = [
            _Choice(
                len(prompt),
                self.tokenizer.detokenizer(self.options.shown),
                StopScanner(self.options.stops, behind=self.options.includes_stop),
                self.received,
            )
            for prompt in self.prompts
            for _ in range(self.options.choices)
        ]
        requests = [self._submit(index) for index in range(len(self._choices))]
        self._stream = self._submitted.enter_context(self.engine.submit(requests, lambda: self.overrun()))
        self.metrics.accepted(self.prompt_tokens)
        self.metrics.choices(self.options.choices, len(self.prompts))

    def _end_all(self) -> None:
        """Aborts what is still running; a second time nothing is."""
        if self._submitted is not None:
            self._submitted.close()
        for choice in self._choices:
            if choice.finish is None:
                self._end(choice, self.abandoned)

    async def pieces(self) -> AsyncIterator[list[Piece]]:
        """Text as it comes, one last piece with `finish` a choice; a list is what came together. ApiError 503 when the
        queue is full, 500 when the engine fails, 400 when the request's own masks leave no
        token. Whoever stops listening closes the iterator: that aborts what is still
        running.
        """
        with ExitStack() as until:
            until.callback(self._end_all)
            self.begin(until)
            while any(choice.finish is None for choice in self._choices):
                made: list[Piece] = []
                failure: ApiError | None = None
                for index, arrived in (await self._stream.next()).items():
                    if self._choices[index].finish is not None:
                        continue
                    try:
                        if self.options.echo and not self._choices[index].echoed and not _failed(arrived):
                            # Off the loop of the other streams: a prompt has as many tokens as the context.
                            made.append(await self.engine.off_loop(self._echo, index, arrived))
                        self._take(index, arrived, self._stream, made)
                    except ApiError as error:
                        failure = error
                        break
                if made:
                    yield made
                if failure is not None:
                    raise failure

    def _submit(self, index: int) -> partial[Submit]:
        options = self.options
        prompt, number = divmod(index, options.choices)
        # The prompt's own log-probabilities are the same for all of its answers.
        scored = [options.echo_logprobs] if number else [options.echo_logprobs, options.prompt_logprobs]
        return partial(
            Submit,
            prompt=self.prompts[prompt],
            max_tokens=max(1, options.max_tokens[prompt]),
            temperature=options.temperature,
            top_p=options.top_p,
            top_k=options.top_k,
            min_p=options.min_p,
            processing=options.processing,
            seed=options.seeds[number],
            stop_ids=list(options.stop_ids),
            ignore_eos=options.ignore_eos,
            includes_stop=options.includes_stop,
            logprobs=options.logprobs,
            logprob_ids=list(options.logprob_ids),
            prompt_logprobs=max((one for one in scored if one is not None), default=None),
            salt=options.salt,
            priority=options.priority,
            grammar=options.grammar,
            reasoning=options.reasoning,
        )

    def _echo(self, index: int, arrived: Arrived) -> Piece:
        """The prompt again, as the first piece of its answer."""
        choice, prompt = self._choices[index], self.prompts[index // self.options.choices]
        scores = []
        if (most := self.options.echo_logprobs) is not None:
            scores = [replace(one, top=one.top[:most]) for one in arrived.prompt_logprobs]
        text, said = prompt_in_text(self.tokenizer, prompt, scores)
        if most is not None and not said:  # a prompt of one token has none to tell
            said = (TokenInText(prompt[0], 0, None),)
        choice.echoed, choice.waiting.base = True, len(text)
        return Piece(index, text, said=said)

    def _take(self, index: int, arrived: Arrived, stream: EngineStream, made: list[Piece]) -> None:
        """Appends to `made` what came of one choice, as text. ApiError for the error that ended it, after its text."""
        prompt = index // self.options.choices
        if self.options.max_tokens[prompt] == 0:
            _drop_answer(arrived)
        if arrived.prompt_logprobs:
            self.prompt_scores.setdefault(prompt, arrived.prompt_logprobs)
        choice, finished = self._choices[index], arrived.finished
        choice.cached += arrived.cached
        text, used, stopped = self._read(choice, arrived)
        # The token that stopped a choice was generated, though it is no text.
        ended = not stopped and finished is not None and finished.reason is FinishReason.Stop
        stop_token = ended and not (self.options.includes_stop or (finished is not None and finished.complete))
        if tokens := used + stop_token:
            self._came(choice, tokens)
        if self.options.token_ids:
            choice.ids += arrived.ids[:used]
        if stopped:
            stream.abort(index)
            self._end(choice, FinishReason.Stop)
        last = finished is not None and not stopped and not _failed(arrived)
        if stopped or (text and not last):
            said, ids = choice.waiting.with_piece(text), _taken(choice.ids)
            made.append(Piece(index, text, choice.finish, said, ids, choice.stops.found))
        if finished is not None and choice.finish is None:
            made.append(self._finished(index, finished, text if last else ""))

    def _read(self, choice: _Choice, arrived: Arrived) -> tuple[str, int, bool]:
        """The text of new tokens, how many of them it took, and whether a stop string ended it. How tokens came
        together changes none of the three: those after a stop string were never asked for.
        """
        if not self.options.stops:
            return self._made(choice, arrived.ids, arrived.logprobs), len(arrived.ids), False
        texts = []
        for at in range(len(arrived.ids)):
            made = self._made(choice, arrived.ids[at : at + 1], arrived.logprobs[at : at + 1])
            ends = choice.tokens + at >= self.options.processing.min_tokens
            text, stopped = choice.stops.feed(made, ends=ends)
            texts.append(text)
            if stopped:
                return "".join(texts), at + 1, True
        return "".join(texts), len(arrived.ids), False

    def _made(self, choice: _Choice, ids: list[int], logprobs: list[Logprob]) -> str:
        """The characters that new tokens complete; their log-probabilities wait for them."""
        if not logprobs:
            return choice.detokenizer.feed(ids)
        made = []
        for id, logprob in zip(ids, logprobs, strict=True):
            made.append(choice.detokenizer.feed([id]))
            choice.waiting.token(logprob, made[-1])
            choice.logprob += logprob.logprob
        return "".join(made)

    def _came(self, choice: _Choice, tokens: int) -> None:
        """Counts and times new tokens."""
        now = time.perf_counter()
        later = tokens
        if choice.tokens == 0:
            self.metrics.first_token(now - self.received, self.names)
            choice.first = choice.latest = now
            later = tokens - 1
        if later:
            self.metrics.next_tokens((now - choice.latest) / later, later)
        choice.latest = now
        choice.tokens += tokens
        self.metrics.generated(tokens)

    def _finished(self, index: int, event: Finished, text: str) -> Piece:
        """The last piece of a choice, which begins with `text`, or the error that ended it."""
        choice = self._choices[index]
        if event.reason is FinishReason.Rejected:
            self._end(choice, event.reason)
            raise unavailable(f"The queue is full: {event.message}. Send the request again.", "queue_full")
        if event.reason not in (FinishReason.Stop, FinishReason.Length):
            self._end(choice, FinishReason.Error)
            if event.its_own:
                raise invalid(event.message or "the request leaves no token to choose")
            raise engine_error(event.message or "the engine gave this request up")
        rest, stopped = choice.stops.feed(choice.detokenizer.flush())
        self._end(choice, FinishReason.Stop if stopped else event.reason)
        text += rest if stopped else rest + choice.stops.flush()
        said = choice.waiting.with_piece(text, last=not stopped)
        return Piece(index, text, choice.finish, said, _taken(choice.ids), choice.stops.found)

    def _end(self, choice: _Choice, reason: FinishReason) -> None:
        choice.finish = reason
        self.metrics.finished(reason)
        if (trace := CURRENT.get()) is not None:
            trace.finishes.append(reason)
        if reason in (FinishReason.Stop, FinishReason.Length):
            seconds = time.perf_counter() - self.received
            decoding = choice.latest - choice.first
            self.metrics.answered(seconds, choice.prompt_tokens, choice.tokens, decoding, self.names)


def _taken(ids: list[int]) -> tuple[int, ...]:
    """What the list holds; it is empty afterwards."""
    taken = tuple(ids)
    ids.clear()
    return taken


def _drop_answer(arrived: Arrived) -> None:
    """Drops the one token of a request for none: a prompt's pass always yields one."""
    arrived.ids, arrived.logprobs = [], []
    if arrived.finished is not None and arrived.finished.reason is FinishReason.Stop:
        arrived.finished = Finished(arrived.finished.id, FinishReason.Length)


def _failed(arrived: Arrived) -> bool:
    """Whether the request ended without an answer."""
    finished = arrived.finished
    return finished is not None and finished.reason not in (FinishReason.Stop, FinishReason.Length)
