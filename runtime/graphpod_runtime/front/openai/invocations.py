"""POST /invocations: the one address that SageMaker sends requests to. The body's fields show which API they mean."""

from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from graphpod_runtime.front.openai.chat import chat
from graphpod_runtime.front.openai.completions import completions
from graphpod_runtime.front.openai.parse import Parser, size_of, valid
from graphpod_runtime.front.openai.request import ChatRequest, CompletionRequest
from graphpod_runtime.front.openai.service import Service
from graphpod_runtime.front.requests.errors import invalid


class Invocation(BaseModel):
    """A request of either API."""

    model_config = ConfigDict(extra="allow")


async def invocations(service: Service, request: Request, parser: Parser) -> Response:
    """A chat for a body with `messages`, a completion for one with `prompt`. ApiError 400 for neither."""
    fields = (await parser.read(request, Invocation)).model_extra or {}
    if "messages" in fields:
        conversation = await parser.apart(size_of(request), lambda: valid(fields, ChatRequest))
        return await chat(service, request, conversation)
    if "prompt" in fields:
        text = await parser.apart(size_of(request), lambda: valid(fields, CompletionRequest))
        return await completions(service, request, text)
    message = "send messages for a chat, or prompt for a completion"
    raise invalid(message, param="messages", code="missing_required_parameter")
