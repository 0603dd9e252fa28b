"""From the bytes of a body to a request: bounds before parsing, one large body at a time, nothing kept of it.

The event loop answers probes and writes streams, so it parses small bodies only. Large ones have a thread, whose checks
of texts let the loop take its turns; what Python's JSON reader holds by itself is some milliseconds a megabyte. What a
body may cost is bounded by counting in it, which takes a hundredth of the time.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from graphpod_runtime.front.requests.errors import ApiError, Code, invalid, shown

LARGE_BODY = 64 << 10
"""Bytes. Smaller ones are parsed at once."""
MAX_NODES = 1 << 16
"""Strings (names of fields are strings), lists and objects of one body: about 9 000 tool calls, or 16 000 content
parts. A parsed one takes 1 µs to 10 µs, and 0.1 to 1 kB.
"""
MAX_ITEMS = 1 << 20
"""Fields of objects and items of lists: numbers are cheap, a prompt may be so many token ids."""
STRING = re.compile(rb'"(?:[^"\\]++|\\.?+)*+(?:"|\Z)', re.DOTALL)
"""One without an end goes to the end of the text: else each of its escaped quotes would be tried as a beginning, and
the time would grow with their square.
"""
HALF = "string_unicode"
"""pydantic's kind of error for half a surrogate pair, in a text or in the name of a field: then of the object that has
it.
"""

decoder = msgspec.json.Decoder(float_hook=float)
"""Of what a client has sent, what is stored of it included. Python reads its floats: of 1e308 and its like msgspec
takes 50 µs each, with the interpreter held.
"""

Body = TypeVar("Body", bound=BaseModel)
Result = TypeVar("Result")


class Parser:
    """Reads the bodies of all requests of one server."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="large bodies")

    async def read(self, request: Request, model: type[Body]) -> Body:
        """The request's body as a `model`. ApiError 400 for another form, 413 for one with too many values, 415 for
        a compressed one.
        """
        if (encoding := request.headers.get("content-encoding", "identity")) != "identity":
            message = f"content-encoding {shown(encoding)} is not supported; send the body uncompressed"
            raise ApiError(415, message, code="unsupported_content_encoding")
        if not _says_json(request.headers.get("content-type", "")):
            raise not_an_object()
        data = b"".join([part async for part in request.stream()])
        return await self.apart(len(data), lambda: parsed(data, model))

    async def apart(self, size: int, work: Callable[[], Result]) -> Result:
        """The result of `work` on so many bytes of JSON: here for small ones, for large ones in the thread."""
        if size < LARGE_BODY:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def size_of(request: Request) -> int:
    """Bytes of a request's body; as a large one where the client did not say."""
    return int(request.headers.get("content-length", LARGE_BODY))


def parsed(data: bytes, model: type[Body]) -> Body:
    """A body of bounded cost as a `model`. ApiError says what is wrong with the first wrong field."""
    _refuse_costly(data)
    try:
        value = _read(data)
    except json.JSONDecodeError as error:
        message = f"The body is not JSON: {error.msg} (at character {error.pos})"
        raise invalid(message, code="invalid_json") from error
    except UnicodeDecodeError as error:
        message = f"The body is not JSON: byte {error.start} is not {error.encoding.upper()}"
        raise invalid(message, code="invalid_json") from error
    except RecursionError as error:
        message = "The body is nested too deeply; send lists and objects in fewer levels"
        raise invalid(message, code="invalid_json") from error
    except ValueError as error:
        raise invalid("The body holds an integer of too many digits", code="invalid_json") from error
    return valid(value, model)


def _read(data: bytes) -> object:
    """As `json.loads`, which takes three times as long. msgspec takes fewer texts (no NaN, no halves of surrogate
    pairs, UTF-8 alone) and says less about wrong ones; what it takes, it reads alike.
    """
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return json.loads(data)


def valid(value: object, model: type[Body]) -> Body:
    """A value of JSON as a `model`. ApiError says what is wrong with the first wrong field."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _first_wrong(error.errors(include_url=False, include_context=False)) from None


def not_an_object() -> ApiError:
    """400: the body is no JSON object, or does not say that it is."""
    return invalid("The body must be a JSON object, sent as content-type application/json", code="invalid_json")


def _says_json(content_type: str) -> bool:
    """application/json, or application/ANY+json."""
    kind, _, subtype = content_type.partition(";")[0].strip().lower().partition("/")
    return kind == "application" and (subtype == "json" or subtype.endswith("+json"))


def _refuse_costly(data: bytes) -> None:
    """ApiError 413 for too many values, which would take too long or too much memory to parse. Counts in the whole text
    first, strings included: few bodies have so many quotes, brackets and commas that the strings must be cut out.
    """
    if data.count(b'"') // 2 + data.count(b"[") + data.count(b"{") > MAX_NODES or data.count(b",") > MAX_ITEMS:
        bare, strings = STRING.subn(b"", data, MAX_NODES + 1)
        if strings > MAX_NODES or strings + bare.count(b"[") + bare.count(b"{") > MAX_NODES:
            raise _too_many(f"{MAX_NODES} strings, lists and objects")
        if bare.count(b",") > MAX_ITEMS:
            raise _too_many(f"{MAX_ITEMS} items")


def _too_many(what: str) -> ApiError:
    return ApiError(
        413, f"The request's body holds more than {what}; send fewer prompts, messages or tools at once.",
        code="request_too_large",
    )  # fmt: skip


def _first_wrong(errors: list[Any]) -> ApiError:
    """The first field that is wrong. Of a union's branches the one that got furthest shows what was meant."""
    first = max((entry for entry in errors if entry["loc"][:1] == errors[0]["loc"][:1]), key=_distance)
    param = path(part for part in first["loc"] if not _is_branch(part))
    if first["type"] == HALF:
        what = f"{param}: holds" if param else "The name of a field holds"
        return invalid(f"{what} half a surrogate pair; send whole characters", param=param or None)
    if not param:
        return not_an_object()
    code = _code(first["type"])
    return invalid(f"{param}: {first['msg']}", param=param, code=code)


def path(parts: Iterable[str | int]) -> str:
    """A field as OpenAI writes it: `messages[0].content`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{shown(part)}" for part in parts).removeprefix(".")


def _code(kind: str) -> Code:
    """Our word for pydantic's kind of error."""
    if kind == "missing":
        return "missing_required_parameter"
    if kind == "not_built":
        return "unsupported_parameter"
    return "invalid_type" if kind.endswith(("_type", "_from_float")) else "invalid_value"


def _distance(entry: Any) -> tuple[int, list[int], bool, bool]:
    """How deep a check got, and at which items of its lists; what has the right type got further than what has not, and
    a number that is no integer further than one that is no text.
    """
    loc, kind = entry["loc"], entry["type"]
    is_number = isinstance(entry["input"], float) and kind == "int_type"
    return len(loc), [part for part in loc if isinstance(part, int)], not kind.endswith("_type"), is_number


BRANCHES = ("list[", "constrained-", "function-", "dict[", "literal[", "NamedTool", "AllowedChoice", "@")


def _is_branch(part: object) -> bool:
    """pydantic puts the branch of a union ("list[str]", "str", "constrained-str") into the path, and "[key]" after an
    object's wrong name; clients know none of these.
    """
    return isinstance(part, str) and (part in ("str", "int", "[key]") or part.startswith(BRANCHES))
