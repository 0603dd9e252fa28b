"""The id of one HTTP request: `x-request-id` of its answer, and of the log line where it is refused.

A client's own id is used when it is one word of bounded length. Otherwise a generated answer's id is (`chatcmpl-…`),
and every other answer gets an id of its own (`req-…`).
"""

import re
import uuid
from collections.abc import Mapping, MutableMapping
from typing import Any

HEADER = b"x-request-id"
ANTHROPIC_HEADER = b"request-id"
"""The same in answers of Anthropic's API."""
MAX_LENGTH = 128
"""Characters of a client's own id."""
WORD = re.compile(rb"[A-Za-z0-9._:/+=-]{1,%d}" % MAX_LENGTH)
"""Such an id needs no escape in a log line."""
IGNORED = "graphpod.ignored_fields"
"""Where the application leaves the value of the answer's `x-ignored-fields` in a request's scope."""
ANSWER = "graphpod.answer_id"
"""Where the application leaves its answer's id in a request's scope."""


def request_id(scope: Mapping[str, Any]) -> str:
    """The client's id if it is valid, else the answer's, else a new one."""
    sent = next((value for name, value in scope["headers"] if name == HEADER), b"")
    return sent.decode() if WORD.fullmatch(sent) else scope.get(ANSWER) or new_id("req")


def answer_id(scope: MutableMapping[str, Any], prefix: str, separator: str = "-") -> str:
    """A new id for the request's answer, as those of its API look."""
    id = scope[ANSWER] = new_id(prefix, separator)
    return id


def new_id(prefix: str, separator: str = "-") -> str:
    """An id that no other request has."""
    return f"{prefix}{separator}{uuid.uuid4().hex}"
