"""The FastAPI application of the API port, and its errors in OpenAI's shape."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from graphpod_runtime.front.openai.chat import chat
from graphpod_runtime.front.openai.completions import completions
from graphpod_runtime.front.openai.errors import ApiError, invalid, our_mistake, shown, unavailable, unknown_model
from graphpod_runtime.front.openai.protocol import ChatRequest, CompletionRequest, ModelCard, ModelList
from graphpod_runtime.front.openai.service import Service
from graphpod_runtime.front.openai.stream import json_response


def openai_app(service: Service) -> FastAPI:
    """POST /v1/chat/completions, POST /v1/completions, GET /v1/models and /v1/models/{model}."""
    app = FastAPI(title="graphpod", openapi_url=None)

    @app.post("/v1/chat/completions")
    async def chat_completions(request: Request, body: ChatRequest) -> Response:
        return await chat(service, request, body)

    @app.post("/v1/completions")
    async def text_completions(request: Request, body: CompletionRequest) -> Response:
        return await completions(service, request, body)

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
        return Response(error.encoded(), error.status, error.headers())

    @app.exception_handler(RequestValidationError)
    async def invalid_request(request: Request, error: RequestValidationError) -> Response:
        return await api_error(request, _invalid(error))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        if error.status_code == 503:
            return await api_error(request, unavailable(error.detail, "bodies_full"))
        message = f"{request.method} {shown(request.url.path)}: {error.detail}"
        return await api_error(request, ApiError(error.status_code, message))

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        # The server logs the traceback; the client gets the shape that it can read.
        return await api_error(request, our_mistake(error))

    return app


def _card(service: Service) -> ModelCard:
    return ModelCard(service.model, service.created, service.status.context_tokens)


def _invalid(error: RequestValidationError) -> ApiError:
    """The first field that is wrong. Of a union's branches the one that got furthest tells what was meant."""
    errors = error.errors()
    first = max((entry for entry in errors if entry["loc"][:2] == errors[0]["loc"][:2]), key=_distance)
    if first["type"] == "json_invalid":
        cause = first.get("ctx", {}).get("error", first["msg"])
        return invalid(f"The body is not JSON: {cause} (at character {first['loc'][-1]})", code="invalid_json")
    names = [shown(str(part)) for part in first["loc"][1:] if not _is_branch(part)]
    if not names:
        return invalid(f"The body must be a JSON object, sent as content-type application/json: {first['msg']}")
    param = ".".join(names)
    return invalid(f"{param}: {first['msg']}", param=param, code=first["type"])


def _distance(entry: Any) -> tuple[int, list[int], bool]:
    """How deep a check got, and at which items of its lists; what has the right type got further than what has not."""
    loc = entry["loc"]
    return len(loc), [part for part in loc if isinstance(part, int)], not entry["type"].endswith("_type")


def _is_branch(part: object) -> bool:
    """pydantic puts the branch of a union ("list[str]", "str", "constrained-str") into the path; clients know none."""
    return isinstance(part, str) and (part in ("str", "int") or part.startswith(("list[", "constrained-", "function-")))
