"""What callers of the library catch. A start that fails raises StartFailure, a folder or setting LocalError."""

import contextlib
from collections.abc import Iterator

from graphpod_runtime.front.requests.errors import ApiError


class RequestRefused(ValueError):
    """The request is wrong. `param` names its field, `code` is the machine's word, as over HTTP."""

    def __init__(self, message: str, param: str | None = None, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param, self.code = param, code


class EngineFailed(RuntimeError):
    """The engine failed this request: with logits that are not finite this one alone, after an error of the device or
    an interrupted pass all that are open and all to come.
    """


class EngineClosed(RuntimeError):
    """The engine is closed, or not started yet."""


@contextlib.contextmanager
def in_our_words() -> Iterator[None]:
    """What the front raises for HTTP, as the library's errors."""
    try:
        yield
    except ApiError as error:
        if error.status < 500:
            raise RequestRefused(error.message, error.param, error.code) from error
        raise EngineFailed(error.message) from error
