"""The types that fields of requests have, and their bounds."""

import itertools
import json
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

MAX_STOPS = 16
MAX_STOP_LENGTH = 1024
"""Characters of a stop string."""
MAX_SALT = 256
"""Characters of `cache_salt`."""
MAX_MESSAGES = MAX_PROMPTS = 8192
MAX_TOOL_CALLS = 128
"""Of one turn."""
MAX_DEPTH = 16
"""Levels of lists and objects in what a chat template reads."""
MAX_VARIABLES = 16_384
"""Bytes of `chat_template_kwargs` as JSON."""
MAX_METADATA = 16
"""Entries of `metadata`."""
MAX_ALTERNATIVES = 20
"""Alternatives to each token of an answer."""


def whole_characters(text: str) -> str:
    """JSON can spell half a surrogate pair, which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        message = "holds half a surrogate pair ({half}) at character {at}; send whole characters"
        raise PydanticCustomError("half_character", message, {"half": half, "at": error.start}) from None
    return text


def depth_fits(value: Any, allowed: int = MAX_DEPTH) -> bool:
    """Whether lists and objects in `value` lie at most `allowed` levels deep."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(allowed):
        # Level by level: a list may have a million numbers.
        below = itertools.chain.from_iterable(one.values() if isinstance(one, dict) else one for one in level)
        level = [item for item in below if type(item) in (dict, list)]
        if not level:
            break
    return not level


def takes_more(value: Any, allowed: int) -> bool:
    """Whether a value of JSON takes more than so many bytes for sure: a look at about as many of its parts, however
    large it is. False may be wrong by blanks, escapes and marks.
    """
    left, size = [iter((value,))], 0
    while left and size <= allowed:
        for one in left[-1]:
            size += len(one) if isinstance(one, str) else 1
            if isinstance(one, dict):
                left.append(itertools.chain.from_iterable(one.items()))
                break
            if isinstance(one, list):
                left.append(iter(one))
                break
            if size > allowed:
                break
        else:
            left.pop()
    return size > allowed


def why_unwritable(value: Any, allowed: int = MAX_DEPTH) -> str | None:
    """What is wrong with a value of JSON that cannot be written again: too deep, or half a surrogate pair. None where
    it can be.
    """
    if not depth_fits(value, allowed):
        return f"is nested more than {allowed} levels deep"
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "holds half a surrogate pair; send whole characters"
    return None


def _writable(value: Any) -> Any:
    if (why := why_unwritable(value)) is not None:
        raise PydanticCustomError("unwritable", "{why}", {"why": why})
    return value


Text = Annotated[str, AfterValidator(whole_characters)]
SentBack = Annotated[list[Any], AfterValidator(_writable)]
"""A list of an earlier answer, which is kept as it is."""
StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH), AfterValidator(whole_characters)]
# A list fails at its first wrong item: an error for each of a million would cost gigabytes.
Tokens = Annotated[list[int], Field(fail_fast=True)]
# Bounded: the wire to the engine holds 64 bits, and messages write numbers out.
StopTokens = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=MAX_STOPS, fail_fast=True)]
MaxTokens = Annotated[int, Field(ge=1, lt=2**63)]
ThinkingTokens = Annotated[int, Field(ge=-1, lt=2**31)]
MetadataName = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]
STRICT = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, use_attribute_docstrings=True)
"""true and "5" are no numbers; neither are NaN and Infinity, which Python's JSON reads. The texts below the fields are
those of the reference page.
"""
