"""What callers of the library catch. A start that fails raises StartFailure, a folder or setting LocalError."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from graphpod_runtime.api.results import Generated
from graphpod_runtime.front.requests.errors import ApiError


class RequestError(Exception):
    """A request has no answer."""

    answers: "Sequence[Answer]" = ()
    """Of a call with several prompts that ran: the answer to each, or the error in its place."""


Answer = Generated | RequestError


class RequestRefused(RequestError, ValueError):
    """The request is wrong. `param` names its field, `code` is the machine's word, as over HTTP."""

    def __init__(self, message: str, param: str | None = None, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param, self.code = param, code


class EngineFailed(RequestError, RuntimeError):
    """The engine failed this request: with logits that are not finite this one alone, after an error of the device or
    an interrupted pass all that are open and all to come.
    """


class EngineClosed(RuntimeError):
    """The engine is closed, or not started yet."""


def in_words(error: ApiError) -> RequestError:
    """What the front raises for HTTP, as the library's error."""
    if error.status < 500:
        return RequestRefused(error.message, error.param, error.code)
    return EngineFailed(error.message)


@contextlib.contextmanager
def in_our_words() -> Iterator[None]:
    """What the front raises for HTTP within, as the library's errors."""
    try:
        yield
    except ApiError as error:
        raise in_words(error) from error


def of_several(failed: Mapping[int, RequestError], count: int, answers: Sequence[Answer] = ()) -> RequestError:
    """The error of a call with `count` prompts, by those that `failed`, one at least: it says what the first one's
    says, and has the `answers` to all.
    """
    index = min(failed)
    first, others = failed[index], f" ({len(failed)} of {count} prompts failed)" if len(failed) > 1 else ""
    message = f"prompt {index}: {first}{others}"
    error: RequestError = EngineFailed(message)
    if isinstance(first, RequestRefused):
        error = RequestRefused(message, first.param, first.code)
    error.answers = answers
    return error
