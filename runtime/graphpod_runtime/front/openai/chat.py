"""POST /v1/chat/completions."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from graphpod_runtime.front.metrics.exemplars import names_of
from graphpod_runtime.front.openai.chunks import Chunks
from graphpod_runtime.front.openai.logprobs import chat_logprobs
from graphpod_runtime.front.openai.messages import Conversation
from graphpod_runtime.front.openai.reply import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatReply,
)
from graphpod_runtime.front.openai.request import ChatRequest
from graphpod_runtime.front.openai.sampling.choices import refuse_repeated
from graphpod_runtime.front.openai.sampling.prompt_logprobs import prompt_logprobs
from graphpod_runtime.front.openai.sampling.truncation import contexts_of, truncated
from graphpod_runtime.front.openai.service import Service, usage, usage_so_far
from graphpod_runtime.front.openai.stream import EventStream, answer
from graphpod_runtime.front.openai.structured.check import in_words
from graphpod_runtime.front.openai.structured.grammar import grammar_of
from graphpod_runtime.front.openai.turn.chat_shape import deltas_of, message_of
from graphpod_runtime.front.openai.turn.grammar import after_reasoning, answer_or_calls, grammar_of_calls
from graphpod_runtime.front.openai.turn.reader import TurnPiece, TurnReader
from graphpod_runtime.front.openai.turn.reasoning_fields import with_effort, without_idle_switches
from graphpod_runtime.front.openai.turn.reasoning_limit import reasoning_limit
from graphpod_runtime.front.openai.turn.tool_fields import Tool, ToolUse
from graphpod_runtime.front.openai.turn.turn_form import TAIL, form_of, refuse_unreadable
from graphpod_runtime.front.openai.unbuilt_fields import header_of
from graphpod_runtime.front.request_id import IGNORED, answer_id
from graphpod_runtime.front.requests.errors import invalid
from graphpod_runtime.front.requests.generation import Generation, Piece
from graphpod_runtime.front.text.chat_template import TemplateError
from graphpod_runtime.front.text.turn.parts import Content, Reasoning
from graphpod_runtime.front.text.turn.turn_parser import TurnForm
from graphpod_runtime.wire.messages import Grammar


async def chat(service: Service, request: Request, body: ChatRequest) -> Response:
    """One assistant's turn, whole or as a stream. ApiError says what is wrong with the request."""
    received = time.perf_counter()
    with ExitStack() as until:
        ignored = service.admit(body, 1, until, lambda: body.choices)
        if (template := service.tokenizer.template) is not None and not template.knows_reasoning:
            ignored.update(dict.fromkeys(body.reasoning_fields))
        request.scope[IGNORED] = header_of(ignored)
        return await _answer(service, request, body, received, until)


async def _answer(service: Service, request: Request, body: ChatRequest, received: float, until: ExitStack) -> Response:
    alternatives, echoed = body.alternatives, body.echoed
    refuse_repeated(len(echoed), body.choices, "echo")
    generation = await chat_generation(service, body, received, until)
    generation.begin(until)
    [prompt], choices = generation.prompts, range(body.choices)
    id, created = answer_id(request.scope, "chatcmpl"), int(time.time())
    generation.names = names_of(id, request.headers.get("traceparent"))

    def logprobs(*pieces: Piece) -> ChatLogprobs | None:
        said = (one for piece in pieces for one in piece.said)
        as_ids = bool(body.return_tokens_as_token_ids)
        if alternatives is None:
            return None
        return chat_logprobs(service.tokenizer, said, as_ids=as_ids, with_own=bool(body.logprob_token_ids))

    def token_ids(*pieces: Piece) -> list[int] | UnsetType:
        return [id for piece in pieces for id in piece.ids] if body.return_token_ids else UNSET

    begun = [Content(echoed)] if echoed else []
    prompt_ids = prompt if body.return_token_ids else UNSET
    reader = TurnReader(generation)
    shows = body.include_reasoning is not False

    def turn_of(piece: Piece) -> TurnPiece:
        turn = reader.read(piece)
        if shows:
            return turn
        return replace(turn, parts=tuple(part for part in turn.parts if not isinstance(part, Reasoning)))

    if not body.stream:

        def reply(pieces: list[Piece]) -> ChatReply:
            by_choice: list[list[Piece]] = [[] for _ in choices]
            for piece in pieces:
                by_choice[piece.index].append(piece)
            answers = []
            for index, own in enumerate(by_choice):
                turns = [turn_of(piece) for piece in own]
                message = message_of([*begun, *(part for turn in turns for part in turn.parts)])
                answers.append(ChatChoice(index, message, str(turns[-1].finish), logprobs(*own), token_ids(*own)))
            scores = None
            if (asked := body.prompt_logprobs) is not None:
                scores = prompt_logprobs(service.tokenizer, generation.prompt_scores.get(0, []), asked)
            return ChatReply(id, created, service.model, answers, usage(generation), prompt_ids, scores)

        return await answer(request.receive, generation, reply)

    so_far = usage_so_far(body, generation)

    def encode(piece: Piece) -> list[ChatChunk]:
        turn = turn_of(piece)
        if not (turn.parts or turn.finish or turn.said or (turn.ids and body.return_token_ids)):
            return []
        *before, last = deltas_of(turn.parts)
        choices = [ChatChunkChoice(piece.index, delta, None, None, token_ids()) for delta in before]
        # Whoever has read the tokens of an event has had all of its text.
        choices.append(ChatChunkChoice(piece.index, last, turn.finish, logprobs(piece), token_ids(piece)))
        return [ChatChunk(id, created, service.model, [choice], so_far()) for choice in choices]

    def tail() -> list[ChatChunk]:
        return [ChatChunk(id, created, service.model, [], usage(generation))] if body.include_usage else []

    head: list[Struct] = []
    for index in choices:
        first = ChatChunkChoice(index, ChatDelta(role="assistant", content=""))
        head.append(ChatChunk(id, created, service.model, [first], so_far(), UNSET if index else prompt_ids))
        if begun:
            again = ChatChunkChoice(index, ChatDelta(content=echoed))
            head.append(ChatChunk(id, created, service.model, [again], so_far()))
    return EventStream(
        generation, Chunks(encode, head, tail, varies=body.varies or not generation.turn.is_text), until.pop_all()
    )


async def chat_generation(service: Service, body: ChatRequest, received: float, until: ExitStack) -> Generation:
    """The work of an admitted request. Every API that has turns comes here. ApiError says what is wrong with it."""
    family, use = service.family, body.tool_use
    refuse_unreadable(family, use)
    if family.reasons and body.include_reasoning is False and (body.logprobs or body.return_token_ids):
        message = "include_reasoning false hides reasoning, and logprobs or return_token_ids would show it; send one"
        raise invalid(message, param="include_reasoning")
    max_tokens = body.max_completion_tokens or body.max_tokens
    prompt = await answered_prompt(service, body, max_tokens)
    form = form_of(family, use, service.tokenizer.spelled_out(prompt[-TAIL:]))
    reasoning = reasoning_limit(body.most_reasoning, form, body.allowed_token_ids, service.tokenizer)
    service.admit_tokens([prompt], until, body.choices)
    if (asked := body.prompt_logprobs) is not None:
        service.admit_prompt_logprobs([prompt], asked, until, param="prompt_logprobs")
    return service.generation(
        body, [prompt], max_tokens, param="messages", received=received, logprobs=body.alternatives, turn=form,
        grammar=await _grammar(service, body, use, form), reasoning=reasoning,
    )  # fmt: skip


async def _grammar(service: Service, body: ChatRequest, use: ToolUse | None, form: TurnForm) -> Grammar | None:
    """What the turn must be; None: any text. ApiError 400 for what cannot be used, or for two of them."""
    asked = grammar_of(body)
    if asked is not None and use is not None and use.mode == "auto" and service.family.calls is not None:
        param, grammar = asked
        with in_words(param):
            grammar = answer_or_calls(grammar, use, service.family, form)
        return await service.usable(param, grammar)
    calls = None if use is None else grammar_of_calls(use, service.family, form)
    if calls is not None:
        if asked is not None:
            message = f"{asked[0]} and tools that are forced or strict both say what the answer must be; send one"
            raise invalid(message, param=asked[0])
        return await service.usable("tools", calls)
    if asked is None:
        return None
    param, grammar = asked
    with in_words(param):
        grammar = after_reasoning(grammar, form)
    return await service.usable(param, grammar)


async def answered_prompt(service: Service, body: ChatRequest, max_tokens: int | None) -> list[int]:
    """The prompt of a request's answer: the conversation with the tools that may be called, cut where it is to be."""
    use = body.tool_use
    prompt = await chat_prompt(service, body, use.tools if use is not None and use.mode != "none" else ())
    if body.add_special_tokens:
        prompt = service.tokenizer.surrounded(prompt)
    return truncated(body, prompt, service.status.context_tokens, max_tokens)


async def chat_prompt(service: Service, body: Conversation, tools: Sequence[Tool] | None = None) -> list[int]:
    """The conversation as token ids, with `tools`; None: with all that it has. `body` has no messages afterwards: an
    answer may take minutes, and they are megabytes.
    """
    template, ending = service.tokenizer.template, body.ending
    given = without_idle_switches(template, body.variables, reasons=service.family.reasons)
    variables = with_effort(template, given, body.reasoning_effort)
    turns, body.messages = body.messages, []
    plain = [tool.plain() for tool in (body.tools or () if tools is None else tools)]
    characters = sum(turn.characters for turn in turns) + (len(str(plain)) if plain else 0)

    def tokens(limit: int) -> list[int]:
        # Off the event loop, too: arguments of calls may be megabytes of JSON.
        messages = [turn.plain(at) for at, turn in enumerate(turns)]
        return service.tokenizer.encode_chat(messages, variables, limit, ending, plain)

    contexts = contexts_of(body) if isinstance(body, ChatRequest) else 1
    try:
        return await service.tokenized(tokens, characters, "messages", contexts=contexts)
    except TemplateError as error:
        raise invalid(str(error), param=error.param) from error
