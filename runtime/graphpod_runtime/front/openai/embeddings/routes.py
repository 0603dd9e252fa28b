"""POST /v1/embeddings, /v1/score and /v1/rerank, in the forms of OpenAI and vLLM."""

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from graphpod_runtime.front.metrics.exemplars import names_of
from graphpod_runtime.front.openai.chat import chat_prompt
from graphpod_runtime.front.openai.embeddings.inputs import Cut, token_ids
from graphpod_runtime.front.openai.embeddings.pooler import Pooler
from graphpod_runtime.front.openai.embeddings.reply import (
    EmbeddingReply,
    PromptUsage,
    Rank,
    RankedDocument,
    RerankReply,
    Score,
    ScoreReply,
)
from graphpod_runtime.front.openai.embeddings.request import (
    EmbeddingRequest,
    RerankRequest,
    ScoreRequest,
    VectorRequest,
)
from graphpod_runtime.front.openai.embeddings.vectors import cosines, encoded
from graphpod_runtime.front.openai.service import Service
from graphpod_runtime.front.openai.stream import ClientGone, json_response, unless_gone
from graphpod_runtime.front.openai.unbuilt_fields import header_of
from graphpod_runtime.front.request_id import ANSWER, IGNORED, answer_id
from graphpod_runtime.front.requests.embedding import Embedding
from graphpod_runtime.front.requests.errors import CLIENT_GONE, invalid

MAX_NUMBERS = 1 << 22
"""Numbers of all vectors of one answer: 1024 of 4096. As JSON they are about 80 MB."""

Reply = Callable[[list[bytes], Embedding], msgspec.Struct]


class Embeddings:
    """The three routes over one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.pooler = Pooler.read(Path(service.status.config.model.path))

    async def embeddings(self, request: Request, body: EmbeddingRequest) -> Response:
        """A vector for each input. ApiError says what is wrong with the request."""
        received = time.perf_counter()
        entries = _entries(body)
        with ExitStack() as until:
            cut = self._admit(request, body, len(entries) or 1, until)
            self._check_size(body.dimensions, len(entries) or 1)
            if body.messages:
                if body.truncate_prompt_tokens is not None:
                    message = "truncate_prompt_tokens is for input; a cut chat would lose its end"
                    raise invalid(message, param="truncate_prompt_tokens", code="unsupported_parameter")
                entries, param = [await chat_prompt(self._service, body)], "messages"
            else:
                param = "input"
            specials = body.add_special_tokens is not False
            prompts = await token_ids(self._service, entries, cut, param, specials=specials)
            entries.clear()
            body.input = None
            id, created = answer_id(request.scope, "embd"), int(time.time())
            dimensions, unit, base64 = body.dimensions, body.use_activation is not False, body.encoding_format

            def reply(vectors: list[bytes], work: Embedding) -> EmbeddingReply:
                data: Any = encoded(vectors, dimensions, unit=unit, base64_=base64 == "base64")
                return EmbeddingReply(id, created, self._service.model, data, _usage(work))

            return await self._answer(request, body, prompts, "embedding", reply, received, until)

    async def score(self, request: Request, body: ScoreRequest) -> Response:
        """The cosine of each pair of texts."""
        received = time.perf_counter()
        first, second = body.sides
        different = list(dict.fromkeys([*first, *second]))
        with ExitStack() as until:
            cut = self._admit(request, body, len(different), until)
            prompts = await token_ids(self._service, different, cut, "text_1")
            id, created = answer_id(request.scope, "score"), int(time.time())
            place = {text: at for at, text in enumerate(different)}

            def reply(vectors: list[bytes], work: Embedding) -> ScoreReply:
                sides = ([vectors[place[text]] for text in side] for side in (first, second))
                data = [Score(index, score) for index, score in enumerate(cosines(*sides))]
                tokens = sum(len(prompts[place[text]]) for text in (*first, *second))
                return ScoreReply(id, created, self._service.model, data, PromptUsage(tokens, tokens))

            return await self._answer(request, body, prompts, "score", reply, received, until)

    async def rerank(self, request: Request, body: RerankRequest) -> Response:
        """Documents by the cosine of their vectors and the query's."""
        received = time.perf_counter()
        documents = body.listed
        with ExitStack() as until:
            cut = self._admit(request, body, 1 + len(documents), until)
            prompts = await token_ids(self._service, [body.query, *documents], cut, "documents")
            id = answer_id(request.scope, "rerank")

            def reply(vectors: list[bytes], work: Embedding) -> RerankReply:
                scores = cosines([vectors[0]] * len(documents), vectors[1:])
                order = sorted(range(len(documents)), key=lambda index: -scores[index])[: body.top_n or None]
                shows = body.return_documents is not False
                texts = [RankedDocument(documents[index]) if shows else msgspec.UNSET for index in order]
                ranks = [Rank(index, text, scores[index]) for index, text in zip(order, texts, strict=True)]
                return RerankReply(id, self._service.model, _usage(work), ranks)

            return await self._answer(request, body, prompts, "rerank", reply, received, until)

    def _admit(self, request: Request, body: VectorRequest, inputs: int, until: ExitStack) -> Cut:
        """Takes room for the inputs that are with the engine at one time. ApiError for another model, a field or a way
        of pooling that is not built, or a queue without room.
        """
        request.scope[IGNORED] = header_of(self._service.admit(body, min(inputs, self._service.status.batch), until))
        if self.pooler.refused:
            raise invalid(f"this model has no embeddings here: {self.pooler.refused}", param="model")
        return Cut.of(body, self._service.status.context_tokens)

    def _check_size(self, dimensions: int | None, inputs: int) -> None:
        """ApiError 400 for vectors of a length that the model was not trained for, or for too many numbers."""
        own = self.pooler.size or 1
        if (numbers := inputs * min(dimensions or own, own)) > MAX_NUMBERS:
            message = f"{inputs} vectors have {numbers} numbers; at most {MAX_NUMBERS} fit one answer"
            raise invalid(f"{message}. Send fewer inputs at once.", param="input")
        if dimensions is None or dimensions == own:
            return
        if dimensions > own:
            raise invalid(f"dimensions is {dimensions}; this model's vectors have {own}", param="dimensions")
        if self.pooler.every_dimension or dimensions in self.pooler.dimensions:
            return
        allowed = ", ".join(map(str, sorted({*self.pooler.dimensions, own})))
        raise invalid(
            f"dimensions is {dimensions}; this model does not say that its vectors may be cut there. It has {allowed}. "
            "A model says so in config.json, by is_matryoshka or matryoshka_dimensions.",
            param="dimensions",
        )

    async def _answer(
        self,
        request: Request,
        body: VectorRequest,
        prompts: list[list[int]],
        kind: str,
        reply: Reply,
        received: float,
        until: ExitStack,
    ) -> Response:
        service = self._service
        service.admit_tokens(prompts, until)
        work = Embedding(
            service.engine, service.metrics, prompts, self.pooler.pooling, kind, max(1, service.status.batch), received,
            salt=body.cache_salt or "", priority=body.priority or 0,
            names=names_of(request.scope[ANSWER], request.headers.get("traceparent")),
        )  # fmt: skip
        try:
            vectors = await unless_gone(request.receive, work.vectors())
        except ClientGone:
            return Response(status_code=CLIENT_GONE)
        # Vectors are megabytes of numbers: a loop that writes them would delay all streams.
        return await asyncio.to_thread(lambda: json_response(reply(vectors, work)))


def _entries(body: EmbeddingRequest) -> list[str | list[int]]:
    """Every input, as text or token ids; empty for a conversation."""
    found: Any = body.input
    match found:
        case None:
            return []
        case str() | [int(), *_]:
            return [found]
        case []:
            raise invalid("input is an empty list; it needs at least one input", param="input")
        case _:
            return list(found)


def _usage(work: Embedding) -> PromptUsage:
    return PromptUsage(work.prompt_tokens, work.prompt_tokens)
