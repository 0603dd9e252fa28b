"""Errors as OpenAI's clients know them: {"error": {"message", "type", "param", "code"}} with the fitting status."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

SHOWN = 60
"""Characters of a client's own words that an answer repeats."""


def shown(text: str) -> str:
    """The beginning of a field's name or text, for a message. Half a surrogate pair shows as a question mark."""
    beginning = text[:SHOWN].encode(errors="replace").decode()
    return beginning if len(text) <= SHOWN else f"{beginning}…"


Code = Literal[
    "invalid_json",
    "invalid_type",
    "invalid_value",
    "invalid_grammar",
    "missing_required_parameter",
    "unsupported_parameter",
    "context_length_exceeded",
    "invalid_api_key",
    "previous_response_not_found",
    "model_not_found",
    "response_not_found",
    "unknown_url",
    "method_not_supported",
    "request_timeout",
    "slow_reader",
    "request_too_large",
    "unsupported_content_encoding",
    "invalid_http",
    "header_too_large",
    "engine_error",
    "not_ready",
    "draining",
    "asleep",
    "queue_full",
    "bodies_full",
    "too_many_connections",
]
"""The machine's words for what went wrong, by status; docs/reference/http.md explains each."""


CLIENT_GONE = 499
"""The status that no client receives; metrics count it."""
RETRY_AFTER_SECONDS = 1
"""What a 503 means to the client: another replica may answer at once."""


@dataclass(eq=False)
class ApiError(Exception):
    """An answer that is no answer. `param` names the request's field as a path (`messages[0].content`), `code` is the
    machine's word.
    """

    status: int
    message: str
    code: Code
    type: str = "invalid_request_error"
    param: str | None = None
    more_headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, dict[str, str | None]]:
        """The JSON object."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def encoded(self) -> bytes:
        """The JSON text. Half a surrogate pair, which a message may repeat of the request, shows as a question mark."""
        return json.dumps(self.body(), ensure_ascii=False).encode(errors="replace")

    def headers(self) -> dict[str, str]:
        """Content type; when to come back for a 503, and how to ask for a 401."""
        headers = {"content-type": "application/json", **self.more_headers}
        if self.status == 503:
            headers["retry-after"] = str(RETRY_AFTER_SECONDS)
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return headers


def invalid(message: str, param: str | None = None, code: Code = "invalid_value") -> ApiError:
    """400: the request is wrong."""
    return ApiError(400, message, param=param, code=code)


def unknown_model(asked: str, served: str) -> ApiError:
    """404: another model than the one here."""
    return ApiError(
        404, f"The model {shown(asked)!r} does not exist here; this service serves {served!r}.", param="model",
        code="model_not_found",
    )  # fmt: skip


def too_long(limit: int, prompt: int, completion: int, param: str) -> ApiError:
    """400: prompt and answer do not fit the model's context. All figures are tokens; `param` is the prompt's field,
    blamed only when the prompt alone is too long. A shorter answer than requested is never given silently.
    """
    left = limit - prompt
    advice = (
        f"ask for at most {left} tokens, or leave max_tokens out" if left > 0 else f"shorten the {param} by {1 - left}"
    )
    return invalid(
        f"This model's maximum context length is {limit} tokens. However, you requested {prompt + completion} tokens "
        f"({prompt} in the {param}, {completion} in the completion): {advice}.",
        param=param if prompt >= limit else "max_tokens",
        code="context_length_exceeded",
    )


def text_too_long(limit: int, found: str, param: str) -> ApiError:
    """400: the prompt alone is longer than the context. It was not tokenized in full; `found` says what is known of its
    length.
    """
    return invalid(
        f"This model's maximum context length is {limit} tokens. However, the text of your {param} has {found}. "
        f"Shorten the {param}.",
        param=param,
        code="context_length_exceeded",
    )


def too_large(limit: int) -> ApiError:
    """413: more bytes than a prompt for this engine can have."""
    return ApiError(
        413, f"The request's body is larger than {limit} bytes; shorten the prompt or send fewer prompts at once.",
        code="request_too_large",
    )  # fmt: skip


def unknown_url(method: str, path: str, endpoints: str) -> ApiError:
    """404: a path that is not served; `endpoints` are those that are."""
    return ApiError(404, f"{method} {shown(path)} is not served. Use one of: {endpoints}.", code="unknown_url")


def wrong_method(method: str, path: str, allowed: str) -> ApiError:
    """405: a path that is served for the methods `allowed`."""
    message = f"{method} {shown(path)} is not supported; send {allowed} instead."
    return ApiError(405, message, code="method_not_supported", more_headers={"allow": allowed})


def unauthorized() -> ApiError:
    """401: no key, or a wrong one. It says no more than that."""
    return ApiError(
        401,
        "Incorrect API key provided: send the service's key as `Authorization: Bearer KEY` or `x-api-key: KEY`.",
        code="invalid_api_key",
    )


def unavailable(message: str, code: Code) -> ApiError:
    """503: right request, wrong moment."""
    return ApiError(503, message, type="service_unavailable", code=code)


def slow_reader(why: str) -> ApiError:
    """408: the client did not read its answer. Written as an event, in case it reads on."""
    return ApiError(408, f"The answer was given up: {why}. Read it faster, or ask for less.", code="slow_reader")


def engine_error(message: str) -> ApiError:
    """500: the engine failed this request."""
    return ApiError(500, message, type="server_error", code="engine_error")


def our_mistake(error: Exception) -> ApiError:
    """500: the front failed on this request; the traceback is in its log."""
    return engine_error(f"The server failed on this request: {type(error).__name__}")
