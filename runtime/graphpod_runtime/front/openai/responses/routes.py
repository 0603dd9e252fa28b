"""The routes of /v1/responses: the one file that knows HTTP, the service and the store."""

import asyncio
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response as HttpResponse

from graphpod_runtime.front.metrics.exemplars import names_of
from graphpod_runtime.front.openai.chat import chat_generation
from graphpod_runtime.front.openai.fields import MAX_MESSAGES, why_unwritable
from graphpod_runtime.front.openai.logprobs import chat_logprobs
from graphpod_runtime.front.openai.parse import Parser, decoder, size_of, valid
from graphpod_runtime.front.openai.reply import TokenLogprob
from graphpod_runtime.front.openai.request import ChatRequest
from graphpod_runtime.front.openai.responses.items import THOUGHTS, MessageItem, ReasoningItem, Turn
from graphpod_runtime.front.openai.responses.narrator import Narrator
from graphpod_runtime.front.openai.responses.reply import (
    Deleted,
    InputItems,
    InputTokensDetails,
    OutputTokensDetails,
    RawTokens,
    Response,
    ResponseUsage,
    TextLogprob,
)
from graphpod_runtime.front.openai.responses.request import RENAMED, ResponsesRequest
from graphpod_runtime.front.openai.responses.run import GOING, Run
from graphpod_runtime.front.openai.responses.store import Kept, ResponseStore, Running
from graphpod_runtime.front.openai.service import CHARACTERS_A_TOKEN, Service
from graphpod_runtime.front.openai.stream import EventStream, answer, json_response
from graphpod_runtime.front.openai.turn.reader import TurnReader
from graphpod_runtime.front.openai.unbuilt_fields import header_of
from graphpod_runtime.front.request_id import IGNORED, answer_id
from graphpod_runtime.front.requests.errors import ApiError, invalid, shown
from graphpod_runtime.front.requests.generation import Generation
from graphpod_runtime.front.requests.renamed_fields import renamed_fields
from graphpod_runtime.front.text.logprobs import TokenInText

MAX_CONVERSATION_BYTES = 8 << 20
"""Of the turns of a conversation as JSON, those of earlier responses included."""
MAX_ECHO_DEPTH = 64
"""Levels of lists and objects in `tools` and in a schema, which a response repeats."""
ECHOED = ("tools", "tool_choice", "text", "reasoning", "metadata", "user", "prompt_cache_key", "safety_identifier")
"""Fields that a response repeats as they were sent."""
MAX_LISTED = 100
"""Input items of one answer."""
LIMIT = re.compile("[1-9][0-9]{0,2}")
"""`limit`. More digits are more than MAX_LISTED, and Python reads no number of thousands of digits."""

_encoder = msgspec.json.Encoder()


class Responses:
    """The responses of one server."""

    def __init__(self, service: Service, parser: Parser) -> None:
        self._service, self._parser = service, parser
        self.store = ResponseStore()

    async def create(self, request: Request, body: ResponsesRequest) -> HttpResponse:
        """POST /v1/responses. ApiError says what is wrong with the request."""
        received = time.perf_counter()
        if body.model is not None:
            self._service.check_model(body.model)
        before = self._before(body.previous_response_id)
        with ExitStack() as until:
            chat, items, kept = await self._parser.apart(
                size_of(request) + len(before), lambda: self._translated(request, body, before)
            )
            with renamed_fields(RENAMED):
                self._service.admit(chat, 1, until)
                generation = await chat_generation(self._service, chat, received, until)
            id = answer_id(request.scope, "resp", "_")
            generation.names = names_of(id, request.headers.get("traceparent"))
            run = self._run(body, id, generation, items, kept)
            if body.enable_response_messages:
                await self._show_tokens(run)
            if body.background:
                return self._in_background(run, until)
            if body.stream:
                until.callback(run.settle)
                if run.store is not None:
                    run.store.begin(id, run)
                return EventStream(generation, run, until.pop_all())
            said = await answer(request.receive, generation, run.whole)
            if run.store is not None and run.response.status not in GOING:
                run.store.keep(id, run.so_far())
            return said

    def retrieve(self, id: str, request: Request) -> HttpResponse:
        """GET /v1/responses/{id}. ApiError 404 for one that is not here."""
        if request.query_params.get("stream", "false").lower() not in ("false", "0"):
            message = "stream is not built for stored responses; read the response again until it has ended"
            raise invalid(message, param="stream", code="unsupported_parameter")
        return self.retrieve_now(id)

    async def input_items(self, id: str, request: Request) -> HttpResponse:
        """GET /v1/responses/{id}/input_items: the newest first, `limit` of them, those after the item `after`."""
        kept = _kept(self._found(id)).items
        return await self._parser.apart(len(kept), lambda: self._page(decoder.decode(kept), request.query_params))

    def _page(self, items: list[Any], query: QueryParams) -> HttpResponse:
        if (order := query.get("order", "desc")) not in ("asc", "desc"):
            raise invalid(f"order must be asc or desc, not {shown(order)!r}", param="order")
        limit = query.get("limit", "20")
        if not (LIMIT.fullmatch(limit) and int(limit) <= MAX_LISTED):
            raise invalid(f"limit must be an integer from 1 to {MAX_LISTED}, not {shown(limit)!r}", param="limit")
        ordered = items if order == "asc" else items[::-1]
        if (after := query.get("after")) is not None:
            at = next((at for at, item in enumerate(ordered) if item["id"] == after), None)
            if at is None:
                raise invalid(f"after names no item of this response: {shown(after)!r}", param="after")
            ordered = ordered[at + 1 :]
        page = ordered[: int(limit)]
        first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
        return json_response(InputItems(page, first, last, len(page) < len(ordered)))

    def cancel(self, id: str) -> HttpResponse:
        """POST /v1/responses/{id}/cancel. One that has ended stays as it is."""
        found = self._found(id)
        if not found.background:
            raise invalid("Cannot cancel a synchronous response.", param="response_id")
        if not isinstance(found, Kept):
            found.cancel()
        return self.retrieve_now(id)

    def delete(self, id: str) -> HttpResponse:
        """DELETE /v1/responses/{id}. One that runs is cancelled."""
        self._found(id)
        self.store.delete(id)
        return json_response(Deleted(id))

    def retrieve_now(self, id: str) -> HttpResponse:
        """The response as it is."""
        return _json(_kept(self._found(id)).response)

    def _found(self, id: str) -> Running | Kept:
        found = self.store.find(id)
        if found is None:
            message = f"Response with id {shown(id)!r} not found. A pod keeps its own responses, for a time."
            raise ApiError(404, message, code="response_not_found", param="response_id")
        return found

    def _before(self, id: str | None) -> bytes:
        """The turns of the conversation that a request continues, as JSON."""
        if id is None:
            return b"[]"
        found = self.store.find(id)
        if found is None:
            message = f"Previous response with id {shown(id)!r} not found. A pod keeps its own responses, for a time."
            raise invalid(message, param="previous_response_id", code="previous_response_not_found")
        if not isinstance(found, Kept) or found.status not in ("completed", "incomplete"):
            status = found.status if isinstance(found, Kept) else "still running"
            message = f"Previous response {shown(id)!r} is {status}; go on from one that has completed"
            raise invalid(message, param="previous_response_id")
        return found.turns

    def _translated(self, request: Request, body: ResponsesRequest, before: bytes) -> tuple[ChatRequest, bytes, bytes]:
        """The chat that answers, and input items and turns as a store keeps them. `body` has no input afterwards: an
        answer may take minutes, and texts are megabytes. ApiError 400 in the words of both.
        """
        ignored, switch = body.take_ignored(), self._service.reasoning_switch
        neutral = (None,) if switch.reasons else (None, "none")
        if body.reasoning and body.reasoning.effort not in neutral and not switch.has_effect:
            ignored["reasoning.effort"] = None
        if not switch.keeps and any(isinstance(item, ReasoningItem) for item in body.input):
            ignored[THOUGHTS] = None
        request.scope[IGNORED] = header_of(ignored)
        _check_echo(body)
        turns: list[Turn] = [*decoder.decode(before), *body.own_turns]
        items, kept = _to_keep(body, turns)
        as_chat = body.chat(turns, self._service.model, switch)
        with renamed_fields(RENAMED):
            chat = valid(as_chat, ChatRequest)
        body.input = ""
        return chat, items, kept

    def _run(self, body: ResponsesRequest, id: str, generation: Generation, items: bytes, turns: bytes) -> Run:
        service, stored = self._service, body.store is not False

        def logprobs_of(said: Sequence[TokenInText]) -> list[TextLogprob]:
            return [
                TextLogprob(one.token, one.logprob, one.bytes or [], [_named(top) for top in one.top_logprobs])
                for one in chat_logprobs(service.tokenizer, said).content
            ]

        def usage() -> ResponseUsage:
            prompt, completion, cached = (
                generation.prompt_tokens,
                generation.completion_tokens,
                generation.cached_tokens,
            )
            details = InputTokensDetails(cached, service.cache_written(generation))
            thought = OutputTokensDetails(generation.reasoning_tokens or 0)
            return ResponseUsage(prompt, details, completion, thought, prompt + completion)

        response = _response(body, id, service.model, generation)
        narrator = Narrator(response, logprobs_of if body.logprobs else None)
        store = self.store if stored else None
        return Run(narrator, TurnReader(generation), generation, usage, items, turns, store, bool(body.background))

    async def _show_tokens(self, run: Run) -> None:
        """The response has its prompt and answer as tokens, too."""
        service, [prompt] = self._service, run.generation.prompts
        text = await service.tokenized(
            lambda _: service.tokenizer.spelled_out(prompt), CHARACTERS_A_TOKEN * len(prompt), "input"
        )
        run.narrator.response = replace(run.response, input_messages=[RawTokens(text, prompt)])
        run.raw = []

    def _in_background(self, run: Run, until: ExitStack) -> HttpResponse:
        """Runs without the connection, which gets the response as it is queued."""
        held = until.pop_all()
        held.callback(run.settle)
        self.store.begin(run.response.id, run)
        queued = json_response(run.response)
        run.task = asyncio.create_task(run.alone())
        # Not within the task: one that is cancelled before it began never runs.
        run.task.add_done_callback(lambda _: held.close())
        return queued


def _response(body: ResponsesRequest, id: str, model: str, generation: Generation) -> Response:
    """The response before its answer."""
    return Response(
        id=id,
        created_at=int(time.time()),
        status="queued" if body.background else "in_progress",
        model=model,
        background=bool(body.background),
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        metadata=body.metadata or {},
        parallel_tool_calls=body.parallel_tool_calls is not False,
        previous_response_id=body.previous_response_id,
        prompt_cache_key=body.prompt_cache_key,
        reasoning=_dumped(body.reasoning) if body.reasoning else None,
        safety_identifier=body.safety_identifier,
        store=body.store is not False,
        temperature=generation.options.temperature,
        text={"format": {"type": "text"}} | (_dumped(body.text) if body.text else {}),
        tool_choice=body.tool_choice or "auto",
        tools=body.tools or [],
        top_logprobs=body.top_logprobs or 0,
        top_p=generation.options.top_p,
        truncation="disabled",
        user=body.user,
    )


def _check_echo(body: ResponsesRequest) -> None:
    """ApiError 400 for values that a response could not repeat."""
    for name in ECHOED:
        value = getattr(body, name)
        if value is None:
            continue
        plain = _dumped(value) if hasattr(value, "model_dump") else value
        if (why := why_unwritable(plain, MAX_ECHO_DEPTH)) is not None:
            raise invalid(f"{name} {why}", param=name)


def _dumped(model: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = model.model_dump(by_alias=True, exclude_none=True)
    return dumped


def _to_keep(body: ResponsesRequest, turns: list[Turn]) -> tuple[bytes, bytes]:
    """Input items and turns as a store keeps them; nothing for a response that is not stored. ApiError 400 for a
    conversation that is too long.
    """
    if len(turns) > MAX_MESSAGES:
        raise invalid(f"the conversation has {len(turns)} turns; at most {MAX_MESSAGES} are read", param="input")
    if body.store is False:
        return b"", b""
    given = [MessageItem(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    items = _encoder.encode([_listed(at, item.model_dump(exclude_none=True)) for at, item in enumerate(given)])
    kept = _encoder.encode(turns)
    if (size := len(items) + len(kept)) > MAX_CONVERSATION_BYTES:
        raise invalid(f"the conversation takes {size} bytes; at most {MAX_CONVERSATION_BYTES} are kept", param="input")
    return items, kept


def _listed(at: int, item: dict[str, Any]) -> dict[str, Any]:
    """An input item as the list has it: with an id, and its content in parts."""
    item = {"id": f"item_{at}", "status": "completed"} | item
    if item["type"] == "message" and isinstance(item["content"], str):
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        part = {"type": kind, "text": item["content"]}
        item["content"] = [part | ({"annotations": []} if kind == "output_text" else {})]
    return item


def _kept(found: Running | Kept) -> Kept:
    return found if isinstance(found, Kept) else found.so_far()


def _named(top: TokenLogprob) -> TokenLogprob:
    return TokenLogprob(top.token, top.logprob, top.bytes or [])


def _json(body: bytes) -> HttpResponse:
    return HttpResponse(body, media_type="application/json")
