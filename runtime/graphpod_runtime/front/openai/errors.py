"""Errors as OpenAI's clients know them: {"error": {"message", "type", "param", "code"}} with the fitting status."""

import json
import reprlib
from dataclasses import dataclass

RETRY_AFTER_SECONDS = 1
"""What a 503 tells the client: another replica may answer at once."""


@dataclass(eq=False)
class ApiError(Exception):
    """An answer that is no answer. `param` names the request's field, `code` is the machine's word."""

    status: int
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None

    def body(self) -> dict[str, dict[str, str | None]]:
        """The JSON object."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def encoded(self) -> bytes:
        """The JSON text."""
        return json.dumps(self.body(), ensure_ascii=False).encode()

    def headers(self) -> dict[str, str]:
        """Content type; when to come back for a 503, and how to ask for a 401."""
        headers = {"content-type": "application/json"}
        if self.status == 503:
            headers["retry-after"] = str(RETRY_AFTER_SECONDS)
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return headers


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """400: the request is wrong."""
    return ApiError(400, message, param=param, code=code)


def unknown_model(asked: str, served: str) -> ApiError:
    """404: another model than the one here."""
    return ApiError(
        404, f"The model {reprlib.repr(asked)} does not exist here; this service serves {served!r}.", param="model",
        code="model_not_found",
    )  # fmt: skip


def too_long(limit: int, prompt: int, completion: int, param: str) -> ApiError:
    """400: prompt and answer do not fit the model's context. All figures are tokens; `param` is the prompt's field,
    blamed only when the prompt alone is too long.
    """
    return invalid(
        f"This model's maximum context length is {limit} tokens. However, you requested {prompt + completion} tokens "
        f"({prompt} in the {param}, {completion} in the completion). Shorten the {param} or ask for fewer tokens.",
        param=param if prompt >= limit else "max_tokens",
        code="context_length_exceeded",
    )


def too_large(limit: int) -> ApiError:
    """413: more bytes than a prompt for this engine can have."""
    return ApiError(
        413, f"The request's body is larger than {limit} bytes; shorten the prompt or send fewer prompts at once.",
        code="request_too_large",
    )  # fmt: skip


def unauthorized() -> ApiError:
    """401: no key, or a wrong one. It says no more than that."""
    return ApiError(
        401,
        "Incorrect API key provided: send the service's key as `Authorization: Bearer KEY`.",
        code="invalid_api_key",
    )


def unavailable(message: str, code: str) -> ApiError:
    """503: right request, wrong moment."""
    return ApiError(503, message, type="service_unavailable", code=code)


def engine_error(message: str) -> ApiError:
    """500: the engine failed this request."""
    return ApiError(500, message, type="server_error", code="engine_error")
