"""What chat and completions share: checks against the model, and the way from a request to a Generation."""

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from graphpod_runtime.engine.sequence import LEAST, outside
from graphpod_runtime.front.engine_client import EngineClient
from graphpod_runtime.front.generation import Generation, Options
from graphpod_runtime.front.metrics import FrontMetrics
from graphpod_runtime.front.openai.errors import invalid, too_long, unavailable, unknown_model
from graphpod_runtime.front.openai.protocol import GenerationRequest, Usage
from graphpod_runtime.front.status import Status
from graphpod_runtime.front.tokenizer import Tokenizer
from graphpod_runtime.wire import FinishReason

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Service:
    """The parts that a route needs."""

    status: Status
    engine: EngineClient
    tokenizer: Tokenizer
    metrics: FrontMetrics
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def model(self) -> str:
        """The name that clients ask for."""
        return self.status.config.model.name

    def check(self, request: GenerationRequest, prompts: int) -> None:
        """ApiError for another model, a field that is not built, or a queue without room for that many prompts
        (before any tokenising).
        """
        if request.model != self.model:
            raise unknown_model(request.model, self.model)
        request.refuse_unbuilt()
        running, waiting = self.status.batch, self.status.config.serving.max_queue
        places = running + waiting
        if prompts > places:
            raise invalid(f"prompt holds {prompts} prompts; this service takes {places} at a time", param="prompt")
        if self.engine.open + prompts > places:
            for _ in range(prompts):
                self.metrics.finished(FinishReason.Rejected, 0)
            raise unavailable(
                f"The queue is full: {running} requests run and {waiting} wait. Send the request again.",
                "queue_full",
            )

    async def tokenized(self, work: Callable[..., Result], *arguments: object) -> Result:
        """`work` off the event loop: the tokenizer releases the interpreter's lock."""
        return await asyncio.to_thread(work, *arguments)

    def generation(
        self,
        request: GenerationRequest,
        prompts: Sequence[list[int]],
        max_tokens: int | None,
        *,
        param: str,
        received: float,
        logprobs: int | None = None,
        echo: bool = False,
    ) -> Generation:
        """The request's work. `max_tokens` None means up to the model's limit; `received` is time.perf_counter() of
        the request's arrival. ApiError 400 for a prompt that is empty, foreign to the vocabulary or too long; `param`
        is the prompt's field.
        """
        limit, vocabulary = self.status.context_tokens, self.status.vocabulary
        budgets = []
        for prompt in prompts:
            if not prompt:
                raise invalid(f"{param} is empty; it needs at least one token", param=param)
            if (message := outside(prompt, vocabulary)) is not None:
                raise invalid(f"{param}: {message}", param=param)
            budget = max(1, limit - len(prompt)) if max_tokens is None else max_tokens
            if len(prompt) + budget > limit:
                raise too_long(limit, len(prompt), budget, param)
            budgets.append(budget)
        temperature = 1.0 if request.temperature is None else request.temperature
        options = Options(
            max_tokens=tuple(budgets),
            temperature=temperature if temperature >= LEAST else 0.0,
            top_p=1.0 if request.top_p is None else max(LEAST, request.top_p),
            top_k=max(0, request.top_k or 0),
            min_p=request.min_p or 0.0,
            seed=request.seed,
            stops=request.stops,
            stop_ids=tuple(request.stop_token_ids or ()),
            ignore_eos=bool(request.ignore_eos),
            logprobs=logprobs,
            echo=echo,
        )
        return Generation(self.engine, self.tokenizer, self.metrics, prompts, options, received)


def usage(generation: Generation) -> Usage:
    """The token counts of an ended generation."""
    prompt, completion = generation.prompt_tokens, generation.completion_tokens
    return Usage(prompt, completion, prompt + completion)


def new_id(prefix: str) -> str:
    """An id as OpenAI's look."""
    return f"{prefix}-{uuid.uuid4().hex}"
