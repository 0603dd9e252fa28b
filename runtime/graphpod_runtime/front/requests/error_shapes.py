"""Errors in the shape of the API that a path belongs to: OpenAI's, and Anthropic's below /v1/messages."""

import json

from graphpod_runtime.front.requests.errors import ApiError

ANTHROPIC = "/v1/messages"
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
"""Anthropic's words. Another 4xx is an invalid_request_error, another 5xx an api_error."""


def is_anthropic(path: str) -> bool:
    """Whether a path belongs to Anthropic's API."""
    return path == ANTHROPIC or path.startswith(f"{ANTHROPIC}/")


def anthropic_error(error: ApiError) -> bytes:
    """The JSON text; `details.error_code` is our code."""
    kind = TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    said = {"type": kind, "message": error.message, "details": {"error_code": error.code, "param": error.param}}
    return json.dumps({"type": "error", "error": said}, ensure_ascii=False).encode(errors="replace")


def encoded_for(path: str, error: ApiError) -> bytes:
    """The JSON text of an error that answers a request for this path."""
    return anthropic_error(error) if is_anthropic(path) else error.encoded()
