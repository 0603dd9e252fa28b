"""The document, from the rows of operations, the table of error codes and the service's own names."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from pydantic.json_schema import models_json_schema

from graphpod_runtime.front.openapi.operations import OPERATIONS, Operation
from graphpod_runtime.front.reference import CODES
from graphpod_runtime.front.request_id import MAX_LENGTH
from graphpod_runtime.front.requests.error_shapes import TYPES, is_anthropic
from graphpod_runtime.front.requests.errors import Code

Struct = type[msgspec.Struct]
COMPONENT = "#/components/schemas/"
ANSWER = "answer."
"""Before the name of an answer's type: requests have types of the same names."""

ANY: tuple[Code, ...] = ("invalid_http", "header_too_large", "engine_error", "too_many_connections")
"""Any request may get these."""
STARTED: tuple[Code, ...] = ("not_ready", "draining")
WITH_KEY: tuple[Code, ...] = ("invalid_api_key",)
WITH_BODY: tuple[Code, ...] = (
    "invalid_json", "invalid_type", "invalid_value", "missing_required_parameter", "unsupported_parameter",
    "context_length_exceeded", "request_timeout", "request_too_large", "unsupported_content_encoding", "queue_full",
    "bodies_full",
)  # fmt: skip

ERROR = {
    "type": "object",
    "required": ["error"],
    "additionalProperties": False,
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "additionalProperties": False,
            "properties": {
                "message": {"type": "string"},
                "type": {"enum": ["invalid_request_error", "service_unavailable", "server_error"]},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        }
    },
}
ANTHROPIC_ERROR = {
    "type": "object",
    "required": ["type", "error"],
    "additionalProperties": False,
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "required": ["type", "message", "details"],
            "additionalProperties": False,
            "properties": {
                "type": {"enum": [*TYPES.values(), "api_error"]},
                "message": {"type": "string"},
                "details": {
                    "type": "object",
                    "required": ["error_code", "param"],
                    "additionalProperties": False,
                    "properties": {"error_code": {"type": "string"}, "param": {"type": ["string", "null"]}},
                },
            },
        },
    },
}
REQUEST_ID = {
    "description": "The request's id: the client's own if it is one word, otherwise the server's.",
    "schema": {"type": "string", "maxLength": MAX_LENGTH},
}
IGNORED = {
    "description": "Fields of the request that had no effect.",
    "schema": {"type": "string"},
}
RETRY_AFTER = {"description": "Seconds.", "required": True, "schema": {"type": "string", "pattern": "^[0-9]+$"}}
AUTHENTICATE = {"required": True, "schema": {"type": "string"}}


def document(model: str, version: str, paths: Iterable[str], *, key: bool) -> dict[str, Any]:
    """The document of a server that serves `model` at `paths` (as `GET /metrics`). `key`: whether it wants an API key.
    KeyError for a path without a row.
    """
    served = {name: OPERATIONS[name] for name in paths}
    requests, schemas = _requests(served.values(), model)
    answers, components = _answers(served.values())
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "graphpod",
            "version": version,
            "description": f"The HTTP API of the engine that serves `{model}`.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {},
        "components": {"schemas": {"Error": ERROR, "AnthropicError": ANTHROPIC_ERROR} | schemas | components},
    }
    if key:
        made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for name, row in served.items():
        method, path = name.split(" ", 1)
        operation: dict[str, Any] = {
            "operationId": _id(method, path),
            "summary": row.summary,
            "parameters": _parameters(path, model, row.query),
            "responses": _responses(row, answers, _error_of(path), key=key and not row.open),
        }
        if row.request is not None:
            operation["requestBody"] = _json(requests[row.request]) | {"required": True}
        if key:
            operation["security"] = [] if row.open else [{"key": []}]
        made["paths"].setdefault(path, {})[method.lower()] = operation
    return made


def _id(method: str, path: str) -> str:
    return "_".join([method.lower(), *(part.strip("{}").replace(".", "_") for part in path.split("/") if part)])


def _parameters(path: str, model: str, query: tuple[str, ...]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {
            "name": "x-request-id",
            "in": "header",
            "description": "Sent back if it is one word of these characters.",
            "schema": {"type": "string"},
        }
    ]
    for name in re.findall(r"{(\w+)}", path):
        schema = {"type": "string", "enum": [model]} if name == "model" else {"type": "string", "minLength": 1}
        found.append({"name": name, "in": "path", "required": True, "schema": schema})
    found += [{"name": name, "in": "query", "schema": {"type": "string"}} for name in query]
    return found


def _requests(rows: Iterable[Operation], model: str) -> tuple[dict[type, dict[str, Any]], dict[str, Any]]:
    """The schema of each request's body, and the components that they refer to."""
    types = list(dict.fromkeys(row.request for row in rows if row.request is not None))
    found, rest = models_json_schema([(one, "validation") for one in types], ref_template=COMPONENT + "{model}")
    components = rest.get("$defs", {})
    for one in types:
        field = (
            components[found[(one, "validation")]["$ref"].removeprefix(COMPONENT)].get("properties", {}).get("model")
        )
        if field is not None:
            branch = next((part for part in field.get("anyOf", ()) if part.get("type") == "string"), field)
            branch["enum"] = [model]
    return {one: found[(one, "validation")] for one in types}, components


def _answers(rows: Iterable[Operation]) -> tuple[dict[type, dict[str, Any]], dict[str, Any]]:
    """The schema of each answer and event, and the components that they refer to."""
    structs = list(dict.fromkeys(one for row in rows for one in (*_structs(row.answer), *row.events)))
    found, components = msgspec.json.schema_components(structs, ref_template=COMPONENT + ANSWER + "{name}")
    return dict(zip(structs, found, strict=True)), {ANSWER + name: schema for name, schema in components.items()}


def _structs(answer: tuple[Struct, ...] | Struct | str | None) -> tuple[Struct, ...]:
    """The types of an answer that is JSON."""
    if isinstance(answer, tuple):
        return answer
    return () if answer is None or isinstance(answer, str) else (answer,)


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _error_of(path: str) -> dict[str, Any]:
    return {"$ref": f"{COMPONENT}{'AnthropicError' if is_anthropic(path) else 'Error'}"}


def _responses(
    row: Operation, answers: Mapping[type, dict[str, Any]], error: dict[str, Any], *, key: bool
) -> dict[str, Any]:
    done: dict[str, Any] = {"description": "Done.", "headers": {"x-request-id": REQUEST_ID}}
    if isinstance(row.answer, str):
        schema = {"type": "object"} if row.answer == "application/json" else {"type": "string"}
        done["content"] = {row.answer: {"schema": schema}}
    elif row.answer is not None:
        every = [answers[one] for one in _structs(row.answer)]
        done |= _json(every[0] if len(every) == 1 else {"anyOf": every})
    if row.events:
        names = ", ".join(f"`{answers[one]['$ref'].removeprefix(COMPONENT)}`" for one in row.events)
        words = f"Events with JSON: {names}; in the end an error, where there is one."
        parts = {"event": {"type": "string"}, "data": {"type": "string"}}
        each = {"type": "object", "properties": parts, "required": ["data"], "description": words}
        done["content"]["text/event-stream"] = {"schema": each}
    if row.request is not None:
        done["headers"] |= {"x-ignored-fields": IGNORED}
    return {"200": done} | _errors(row, error, key=key)


def _errors(row: Operation, error: dict[str, Any], *, key: bool) -> dict[str, Any]:
    codes = [*ANY, *(() if row.always else STARTED), *(WITH_KEY if key else ())]
    codes += WITH_BODY if row.request is not None else ()
    codes += row.codes
    if row.answer is None:
        codes += STARTED
    by_status: dict[int, list[Code]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(CODES[code][0], []).append(code)
    return {str(status): _error(status, by_status[status], error) for status in sorted(by_status)}


def _error(status: int, codes: list[Code], error: dict[str, Any]) -> dict[str, Any]:
    headers: dict[str, Any] = {"x-request-id": REQUEST_ID}
    if status == 503:
        headers["retry-after"] = RETRY_AFTER
    if status == 401:
        headers["www-authenticate"] = AUTHENTICATE
    words = " ".join(f"`{code}`: {CODES[code][1]}" for code in codes)
    return {"description": words, "headers": headers} | _json(error)
