"""POST /v1/completions."""

import time
from contextlib import ExitStack
from typing import Any

from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from graphpod_runtime.front.metrics.exemplars import names_of
from graphpod_runtime.front.openai.chunks import Chunks
from graphpod_runtime.front.openai.logprobs import text_logprobs
from graphpod_runtime.front.openai.reply import TextChoice, TextLogprobs, TextReply
from graphpod_runtime.front.openai.request import CompletionRequest
from graphpod_runtime.front.openai.sampling.choices import refuse_repeated
from graphpod_runtime.front.openai.sampling.prompt_logprobs import prompt_logprobs
from graphpod_runtime.front.openai.sampling.truncation import contexts_of, truncated
from graphpod_runtime.front.openai.service import Service, usage, usage_so_far
from graphpod_runtime.front.openai.stream import EventStream, answer
from graphpod_runtime.front.openai.unbuilt_fields import header_of
from graphpod_runtime.front.request_id import IGNORED, answer_id
from graphpod_runtime.front.requests.errors import invalid
from graphpod_runtime.front.requests.generation import Piece

DEFAULT_MAX_TOKENS = 16
"""OpenAI's for this endpoint."""


async def completions(service: Service, request: Request, body: CompletionRequest) -> Response:
    """A continuation of each prompt, whole or as a stream. ApiError says what is wrong with the request."""
    received = time.perf_counter()
    entries = _entries(body)
    if not entries:
        raise invalid("prompt is an empty list; it needs at least one prompt", param="prompt")
    if body.max_tokens == 0 and body.logprob_token_ids:
        message = "logprob_token_ids are of an answer's tokens, and max_tokens is 0; ask for 1 or more"
        raise invalid(message, param="logprob_token_ids")
    if body.max_tokens == 0 and not body.echo:
        message = "max_tokens is 0: the answer would be empty; ask for 1 or more, or set echo to have the prompt back"
        raise invalid(message, param="max_tokens")
    with ExitStack() as until:
        request.scope[IGNORED] = header_of(service.admit(body, len(entries), until, lambda: body.choices))
        return await _answer(service, request, body, entries, received, until)


async def _answer(
    service: Service, request: Request, body: CompletionRequest, entries: list[Any], received: float, until: ExitStack
) -> Response:
    prompts = list(entries)
    if texts := [entry for entry in entries if isinstance(entry, str)]:
        characters = sum(map(len, texts))
        prompts = await service.tokenized(
            lambda limit: _encoded(service, entries, limit, specials=body.add_special_tokens is not False),
            characters, "prompt", len(entries), contexts_of(body),
        )  # fmt: skip
    answer_room = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    prompts = [truncated(body, prompt, service.status.context_tokens, answer_room) for prompt in prompts]
    sent, made = body.n or 1, body.choices
    service.admit_tokens(prompts, until, made)
    if body.echo or body.return_token_ids:
        refuse_repeated(sum(map(len, prompts)), sent, "echo" if body.echo else "return_token_ids")
    # An answer may take minutes, and texts are megabytes.
    entries.clear()
    body.prompt = ""
    alternatives = body.alternatives
    generation = service.generation(
        body, prompts, body.max_tokens, unasked=DEFAULT_MAX_TOKENS, param="prompt", received=received,
        # The best answers are found by their log-probabilities.
        logprobs=0 if made > sent and alternatives is None else alternatives,
        echo=bool(body.echo), echo_logprobs=body.logprobs if body.echo else None,
        grammar=await service.grammar(body),
    )  # fmt: skip
    if body.echo and body.logprobs is not None:
        service.admit_prompt_logprobs(prompts, body.logprobs, until, answers=made)
    if (asked := body.prompt_logprobs) is not None:
        # As in vLLM, each answer has those of its prompt.
        service.admit_prompt_logprobs(prompts, asked, until, answers=sent, param="prompt_logprobs")
    generation.begin(until)
    id, created = answer_id(request.scope, "cmpl"), int(time.time())
    generation.names = names_of(id, request.headers.get("traceparent"))

    def logprobs(*pieces: Piece) -> TextLogprobs | None:
        said = (one for piece in pieces for one in piece.said)
        if alternatives is None:
            return None
        as_ids = bool(body.return_tokens_as_token_ids)
        return text_logprobs(service.tokenizer, said, as_ids=as_ids)

    def token_ids(*pieces: Piece) -> list[int] | UnsetType:
        return [id for piece in pieces for id in piece.ids] if body.return_token_ids else UNSET

    def prompt_ids(index: int) -> list[int] | None:
        return prompts[index // made] if body.return_token_ids else None

    if not body.stream:

        def reply(pieces: list[Piece]) -> TextReply:
            own: list[list[Piece]] = [[] for _ in range(made * len(prompts))]
            for piece in pieces:
                own[piece.index].append(piece)
            choices = list[TextChoice]()
            for prompt in range(len(prompts)):
                scores = None
                if asked is not None:
                    found = generation.prompt_scores.get(prompt, [])
                    scores = prompt_logprobs(service.tokenizer, found, asked)
                answers = range(prompt * made, (prompt + 1) * made)
                # Sorting keeps the order of equal ones.
                best = sorted(answers, key=generation.mean_logprob, reverse=True) if made > sent else answers
                for index in best[:sent]:
                    parts = own[index]
                    text = "".join(piece.text for piece in parts)
                    choices.append(
                        TextChoice(
                            len(choices), text, parts[-1].finish, logprobs(*parts), token_ids(*parts),
                            prompt_ids(index), scores,
                        )
                    )  # fmt: skip
            return TextReply(id, created, service.model, choices, usage(generation))

        return await answer(request.receive, generation, reply)

    so_far = usage_so_far(body, generation)
    begun = set[int]()

    def encode(piece: Piece) -> list[TextReply]:
        first = piece.index not in begun
        begun.add(piece.index)
        own = (prompt_ids(piece.index) if first else None) or UNSET
        choice = TextChoice(piece.index, piece.text, piece.finish, logprobs(piece), token_ids(piece), own)
        return [TextReply(id, created, service.model, [choice], so_far())]

    def tail() -> list[TextReply]:
        return [TextReply(id, created, service.model, [], usage(generation))] if body.include_usage else []

    return EventStream(generation, Chunks(encode, [], tail, varies=body.varies), until.pop_all())


def _entries(body: CompletionRequest) -> list[Any]:
    """Every prompt, as text or token ids."""
    match body.prompt:
        case str() | [int(), *_] as one:
            return [one]
        case several:
            return list(several)


def _encoded(service: Service, entries: list[Any], limit: int, *, specials: bool) -> list[list[int]]:
    """Every prompt as token ids, a text with the model's `specials`. TextTooLong for one of more than `limit`."""
    encode = service.tokenizer.encode
    return [encode(entry, limit, specials=specials) if isinstance(entry, str) else entry for entry in entries]
