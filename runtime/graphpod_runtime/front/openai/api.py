"""The FastAPI application of the API port, and its errors in OpenAI's shape."""

from collections.abc import Callable

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from graphpod_runtime.front.openai.chat import chat
from graphpod_runtime.front.openai.completions import completions
from graphpod_runtime.front.openai.embeddings.request import EmbeddingRequest, RerankRequest, ScoreRequest
from graphpod_runtime.front.openai.embeddings.routes import Embeddings
from graphpod_runtime.front.openai.invocations import invocations
from graphpod_runtime.front.openai.parse import Parser
from graphpod_runtime.front.openai.reply import ModelCard, ModelList
from graphpod_runtime.front.openai.request import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest
from graphpod_runtime.front.openai.responses.request import ResponsesRequest
from graphpod_runtime.front.openai.responses.routes import Responses
from graphpod_runtime.front.openai.service import Service
from graphpod_runtime.front.openai.stream import json_response
from graphpod_runtime.front.openai.tokens import detokenize, tokenize
from graphpod_runtime.front.refusals import CODE
from graphpod_runtime.front.requests.error_shapes import encoded_for
from graphpod_runtime.front.requests.errors import ApiError, our_mistake, unknown_model, unknown_url, wrong_method
from graphpod_runtime.front.server.application import Application

ENDPOINTS = (
    "POST /v1/chat/completions",
    "POST /v1/completions",
    "GET /v1/models",
    "GET /v1/models/{model}",
    "POST /v1/responses",
    "GET /v1/responses/{id}",
    "DELETE /v1/responses/{id}",
    "GET /v1/responses/{id}/input_items",
    "POST /v1/responses/{id}/cancel",
    "POST /v1/embeddings",
    "POST /v1/score",
    "POST /v1/rerank",
    "POST /invocations",
    "POST /tokenize",
    "POST /detokenize",
)
"""What the application serves."""


def openai_app(service: Service, parser: Parser, served: Callable[[tuple[str, ...]], str] = ", ".join) -> Application:
    """The application that serves ENDPOINTS; `served` adds what else the port serves, for a 404."""
    app = Application("graphpod")
    stored, vectors = Responses(service, parser), Embeddings(service)

    @app.busy_post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        return await chat(service, request, await parser.read(request, ChatRequest))

    @app.busy_post("/v1/completions")
    async def text_completions(request: Request) -> Response:
        return await completions(service, request, await parser.read(request, CompletionRequest))

    @app.busy_post("/v1/responses")
    async def responses(request: Request) -> Response:
        return await stored.create(request, await parser.read(request, ResponsesRequest))

    @app.get("/v1/responses/{id}")
    async def response(request: Request, id: str) -> Response:
        return stored.retrieve(id, request)

    @app.delete("/v1/responses/{id}")
    async def delete_response(id: str) -> Response:
        return stored.delete(id)

    @app.get("/v1/responses/{id}/input_items")
    async def input_items(request: Request, id: str) -> Response:
        return await stored.input_items(id, request)

    @app.post("/v1/responses/{id}/cancel")
    async def cancel_response(id: str) -> Response:
        return stored.cancel(id)

    @app.busy_post("/v1/embeddings")
    async def embeddings(request: Request) -> Response:
        return await vectors.embeddings(request, await parser.read(request, EmbeddingRequest))

    @app.busy_post("/v1/score")
    async def score(request: Request) -> Response:
        return await vectors.score(request, await parser.read(request, ScoreRequest))

    @app.busy_post("/v1/rerank")
    async def rerank(request: Request) -> Response:
        return await vectors.rerank(request, await parser.read(request, RerankRequest))

    @app.busy_post("/invocations")
    async def either(request: Request) -> Response:
        return await invocations(service, request, parser)

    @app.busy_post("/tokenize")
    async def tokens_of_text(request: Request) -> Response:
        return await tokenize(service, request, await parser.read(request, TokenizeRequest))

    @app.busy_post("/detokenize")
    async def text_of_tokens(request: Request) -> Response:
        return await detokenize(service, request, await parser.read(request, DetokenizeRequest))

    @app.get("/v1/models")
    async def models() -> Response:
        return json_response(ModelList([_card(service)]))

    @app.get("/v1/models/{model:path}")
    async def model(model: str) -> Response:
        if model != service.model:
            raise unknown_model(model, service.model)
        return json_response(_card(service))

    @app.exception_handler(ApiError)
    async def api_error(request: Request, error: ApiError) -> Response:
        request.scope[CODE] = error.code
        return Response(encoded_for(request.scope["path"], error), error.status, error.headers())

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        method, path = request.method, request.url.path
        # FastAPI raises these two by itself: no route for the path, or none for the method.
        if error.status_code == 405:
            return await api_error(request, wrong_method(method, path, ", ".join(_methods(app, path))))
        return await api_error(request, unknown_url(method, path, served(ENDPOINTS)))

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        # The server logs the traceback; the client gets the shape that it can read.
        return await api_error(request, our_mistake(error))

    return app


def _methods(app: Application, path: str) -> list[str]:
    """Those of all routes of a path: FastAPI names only those of the first."""
    routes = (route for route in app.routes if isinstance(route, Route) and route.path_regex.match(path))
    return sorted({method for route in routes for method in route.methods or ()})


def _card(service: Service) -> ModelCard:
    return ModelCard(service.model, service.created, service.status.context_tokens)
