"""What chat and completions share: checks against the model, and the way from a request to a Generation."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from msgspec import UNSET, UnsetType

from graphpod_policy import PrefixCache
from graphpod_runtime.front.metrics.exporter import FrontMetrics
from graphpod_runtime.front.openai.reply import CompletionTokensDetails, PromptTokensDetails, Usage
from graphpod_runtime.front.openai.request import GenerationRequest
from graphpod_runtime.front.openai.sampling.choices import seed_of
from graphpod_runtime.front.openai.sampling.processing import processing_of, refuse_outside
from graphpod_runtime.front.openai.sampling.sampling_defaults import SamplingDefaults
from graphpod_runtime.front.openai.structured.check import GrammarCheck
from graphpod_runtime.front.openai.structured.grammar import grammar_of
from graphpod_runtime.front.openai.turn.reasoning_fields import ReasoningSwitch
from graphpod_runtime.front.openai.unbuilt_fields import Ignored
from graphpod_runtime.front.requests.admission import Admission, Full
from graphpod_runtime.front.requests.errors import invalid, text_too_long, too_long, unavailable, unknown_model
from graphpod_runtime.front.requests.generation import Generation, Options
from graphpod_runtime.front.requests.open_requests import OpenRequests
from graphpod_runtime.front.status import Status
from graphpod_runtime.front.text.tokenizer import TextTooLong, Tokenizer
from graphpod_runtime.front.text.turn.family import Family
from graphpod_runtime.front.text.turn.turn_parser import TurnForm
from graphpod_runtime.wire.bounds import LEAST, outside
from graphpod_runtime.wire.messages import FinishReason, Grammar, ReasoningLimit

Result = TypeVar("Result")

LONG_TEXT = 16 << 10
"""Characters. Longer texts have threads of their own, so that a short one never waits for minutes of long ones."""
TOKENIZER_THREADS = 2
"""Texts of either kind that are tokenized at one time; each takes memory for the tokens of about two contexts."""
CHARACTERS_A_TOKEN = 4
"""By which a text counts until its tokens are known."""
MAX_NAMED = 1 << 17
"""Tokens that log-probabilities of one request's prompts name: prompt tokens x (1 + alternatives). 131 072 are a
prompt of 128k tokens without alternatives, or one of 6 241 with twenty. A named token takes about 0.5 kB in the two
processes together, until it is sent.
"""
TEXT = TurnForm()
"""Answers that are text."""
MAX_NAMED_OPEN = 2 * MAX_NAMED
"""Of all open requests together."""


class Asking(Protocol):
    """What the door needs of a request."""

    @property
    def model(self) -> str | None: ...

    def take_ignored(self) -> Ignored: ...


@dataclass(frozen=True, slots=True)
class Service:
    """The parts that a route needs."""

    status: Status
    engine: OpenRequests
    tokenizer: Tokenizer
    metrics: FrontMetrics
    admission: Admission
    defaults: SamplingDefaults
    grammars: GrammarCheck
    family: Family
    created: int = field(default_factory=lambda: int(time.time()))
    _short: ThreadPoolExecutor = field(default_factory=lambda: _threads("short texts"))
    _long: ThreadPoolExecutor = field(default_factory=lambda: _threads("long texts"))

    @classmethod
    def of(
        cls,
        status: Status,
        engine: OpenRequests,
        tokenizer: Tokenizer,
        metrics: FrontMetrics,
        defaults: SamplingDefaults,
        grammars: GrammarCheck,
    ) -> "Service":
        """The service over these parts, nothing open."""
        serving, template = status.config.serving, tokenizer.template
        family = Family.of(
            serving.tool_parser,
            serving.reasoning_parser,
            template.source if template else "",
            knows_tools=template is not None and template.knows_tools,
        )
        return cls(status, engine, tokenizer, metrics, Admission(MAX_NAMED_OPEN), defaults, grammars, family)

    @property
    def model(self) -> str:
        """The name that clients ask for."""
        return self.status.config.model.name

    @property
    def reasoning_switch(self) -> ReasoningSwitch:
        """What a request can do about the model's reasoning."""
        return ReasoningSwitch.of(
            self.tokenizer.template, reasons=self.family.reasons, limits=self.family.reasoning is not None
        )

    def admit(self, request: Asking, prompts: int, until: ExitStack, answers: Callable[[], int] = lambda: 1) -> Ignored:
        """Takes room for so many prompts, and `answers` to each, before any tokenizing, given back with `until`;
        returns the fields that have no effect. ApiError for another model, a field that is not built, or a queue
        without room.
        """
        self.check_model(request.model)
        ignored = request.take_ignored()
        running, waiting, choices = self.status.batch, self.status.config.serving.max_queue, answers()
        places, asked = running + waiting, prompts
        prompts *= choices
        if asked > places:
            raise invalid(f"prompt holds {asked} prompts; this service takes {places} at a time", param="prompt")
        if prompts > places:
            message = (
                f"{choices} answers to each of {asked} prompts are {prompts}; this service takes {places} at a time"
            )
            raise invalid(message, param="n")
        self._enter(self.admission.prompts(prompts, running, waiting), prompts, until)
        return ignored

    def check_model(self, asked: str | None) -> None:
        """ApiError 404 for another model than the one that is served; a request may name none."""
        if asked is not None and asked != self.model:
            raise unknown_model(asked, self.model)

    def cache_written(self, generation: Generation) -> int:
        """Prompt tokens that a generation put into the prefix cache: those of whole pages that it did not have."""
        config = self.status.config
        if config.prefix_cache is PrefixCache.Off or generation.completion_tokens == 0:
            return 0
        whole = sum(len(prompt) // config.page_size * config.page_size for prompt in generation.prompts)
        return max(0, whole - generation.cached_tokens)

    def admit_tokens(self, prompts: Sequence[list[int]], until: ExitStack, choices: int = 1) -> None:
        """Takes room for the tokens of prompts, for each of the answers to one, given back with `until`. ApiError 503
        when others hold too many.
        """
        room = self.admission.prompt_tokens(choices * sum(map(len, prompts)), self.status.open_tokens)
        self._enter(room, len(prompts), until)

    def admit_prompt_logprobs(
        self,
        prompts: Sequence[list[int]],
        alternatives: int,
        until: ExitStack,
        *,
        answers: int = 1,
        param: str = "logprobs",
    ) -> None:
        """Takes room for the log-probabilities of prompts, each written with so many `answers`, given back with
        `until`. ApiError 400 for more than one request may hold, 503 when others hold too many.
        """
        tokens = answers * sum(map(len, prompts))
        named = tokens * (1 + alternatives)
        if named > MAX_NAMED:
            asking = "echo with logprobs" if param == "logprobs" else param
            each = f", once for each of {answers} answers" if answers > 1 else ""
            raise invalid(
                f"{asking}={alternatives} names {named} tokens ({tokens} in the prompts{each}, each with "
                f"{alternatives} alternatives); at most {MAX_NAMED} fit one request. Shorten the prompts, send them "
                "one by one, or ask for fewer alternatives or answers.",
                param=param,
            )
        self._enter(self.admission.prompt_logprobs(named), len(prompts), until)

    def _enter(self, room: AbstractContextManager[None], prompts: int, until: ExitStack) -> None:
        try:
            until.enter_context(room)
        except Full as full:
            for _ in range(prompts):
                self.metrics.finished(FinishReason.Rejected)
            raise unavailable(f"{full}. Send the request again.", "queue_full") from full

    async def tokenized(
        self, work: Callable[[int], Result], characters: int, param: str, prompts: int = 1, contexts: int = 1
    ) -> Result:
        """`work` on so many characters of `prompts` off the event loop (the tokenizer releases the interpreter's lock),
        given the most tokens that a prompt can have, which are those of so many contexts. ApiError 400 for a text that
        has more, `param` is the prompt's field; 503 when others hold too many tokens.
        """
        limit = self.status.context_tokens * contexts
        threads = self._short if characters <= LONG_TEXT else self._long
        with ExitStack() as until:
            estimate = min(characters // CHARACTERS_A_TOKEN, limit * prompts)
            self._enter(self.admission.prompt_tokens(estimate, self.status.open_tokens), prompts, until)
            try:
                return await asyncio.get_running_loop().run_in_executor(threads, work, limit - 1)
            except TextTooLong as error:
                raise text_too_long(limit, error.found, param) from error

    async def grammar(self, request: GenerationRequest) -> Grammar | None:
        """What the request says that its answer must be; None: any text. ApiError 400 for what cannot be used."""
        return None if (named := grammar_of(request)) is None else await self.usable(*named)

    def grammar_at_once(self, request: GenerationRequest) -> Grammar | None:
        """The same, for callers without an event loop."""
        if (named := grammar_of(request)) is None:
            return None
        param, grammar = named
        self.grammars.refuse_unusable_at_once(grammar, param)
        self.metrics.constrained(grammar.kind)
        return grammar

    async def usable(self, param: str, grammar: Grammar) -> Grammar:
        """A grammar that the field `param` asks for. ApiError 400 for one that cannot be used."""
        await self.grammars.refuse_unusable(grammar, param)
        self.metrics.constrained(grammar.kind)
        return grammar

    def generation(
        self,
        request: GenerationRequest,
        prompts: Sequence[list[int]],
        max_tokens: int | None,
        *,
        unasked: int | None = None,
        param: str,
        received: float,
        logprobs: int | None = None,
        echo: bool = False,
        echo_logprobs: int | None = None,
        grammar: Grammar | None = None,
        turn: TurnForm = TEXT,
        reasoning: ReasoningLimit | None = None,
    ) -> Generation:
        """The request's work. `max_tokens` None means up to the model's limit, or `unasked` where that is less, 0 none;
        `received` is time.perf_counter() of the request's arrival; `turn` is what the answer's text may hold. ApiError
        400 for a prompt that is empty, foreign to the vocabulary or too long; `param` is the prompt's field.
        """
        limit, vocabulary = self.status.context_tokens, self.status.vocabulary
        refuse_outside(request.logprob_token_ids or (), "logprob_token_ids", vocabulary)
        budgets = []
        for prompt in prompts:
            if not prompt:
                raise invalid(f"{param} is empty; it needs at least one token", param=param)
            if (message := outside(prompt, vocabulary)) is not None:
                raise invalid(f"{param}: {message}", param=param)
            left = max(1, limit - len(prompt))
            budget = min(left, unasked or left) if max_tokens is None else max_tokens
            if len(prompt) + max(1, budget) > limit:
                raise too_long(limit, len(prompt), budget, param)
            budgets.append(budget)
        given = {name: getattr(request, name) for name in ("temperature", "top_p", "top_k", "min_p")}
        drawn = replace(self.defaults, **{name: value for name, value in given.items() if value is not None})
        options = Options(
            max_tokens=tuple(budgets),
            temperature=drawn.temperature if drawn.temperature >= LEAST else 0.0,
            top_p=max(LEAST, drawn.top_p),
            top_k=max(0, drawn.top_k),
            min_p=drawn.min_p,
            stops=request.stops,
            stop_ids=tuple(request.stop_token_ids or ()),
            ignore_eos=bool(request.ignore_eos),
            logprobs=logprobs,
            echo=echo,
            token_ids=bool(request.return_token_ids) or turn.reasons,
            salt=request.cache_salt or "",
            priority=request.priority or 0,
            choices=request.choices,
            seeds=tuple(seed_of(request.seed, choice) for choice in range(request.choices)),
            processing=processing_of(request, drawn.repetition_penalty, budgets, self.tokenizer, vocabulary),
            includes_stop=bool(request.include_stop_str_in_output),
            logprob_ids=tuple(request.logprob_token_ids or ()),
            echo_logprobs=echo_logprobs,
            prompt_logprobs=request.prompt_logprobs,
            shown=self._shown(request, turn),
            grammar=grammar,
            reasoning=reasoning,
        )
        generation = Generation(self.engine, self.tokenizer, self.metrics, prompts, options, received)
        generation.turn = turn
        return generation

    def _shown(self, request: GenerationRequest, turn: TurnForm) -> frozenset[int]:
        """The special tokens whose names are part of an answer's text."""
        if request.skip_special_tokens is False:
            return self.tokenizer.specials
        return frozenset() if turn.is_text else self.tokenizer.specials_named(self.family.marks)


def _threads(name: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(TOKENIZER_THREADS, thread_name_prefix=f"tokenizer, {name}")


def usage_so_far(request: GenerationRequest, generation: Generation) -> Callable[[], Usage | UnsetType | None]:
    """What an event of a stream has as its usage: the counts so far, null where they come last, or nothing."""
    if request.continuous_usage:
        return lambda: usage(generation)
    constant = None if request.include_usage else UNSET
    return lambda: constant


def usage(generation: Generation) -> Usage:
    """The token counts of a generation so far."""
    prompt, completion = generation.prompt_tokens, generation.completion_tokens
    reasoning = UNSET if (of := generation.reasoning_tokens) is None else CompletionTokensDetails(of)
    return Usage(prompt, completion, prompt + completion, PromptTokensDetails(generation.cached_tokens), reasoning)
