"""Errors of one request in the words of another: an API that translates its requests names its own fields."""

import contextlib
import re
from collections.abc import Iterator, Sequence

from graphpod_runtime.front.requests.errors import ApiError

Renames = Sequence[tuple[str, str]]
"""Regular expressions of fields, and what they are called instead; the first that matches counts."""


def with_renamed_fields(error: ApiError, renames: Renames) -> ApiError:
    """The error with other names in its path and text."""
    message, param = error.message, error.param
    for found, own in renames:
        message = re.sub(rf"\b(?:{found})", own, message)
    for found, own in renames:
        if param is not None and re.match(found, param):
            param = re.sub(rf"^(?:{found})", own, param)
            break
    return ApiError(error.status, message, error.code, error.type, param, error.more_headers)


@contextlib.contextmanager
def renamed_fields(renames: Renames) -> Iterator[None]:
    """Errors of what is done within have other names."""
    try:
        yield
    except ApiError as error:
        raise with_renamed_fields(error, renames) from error
