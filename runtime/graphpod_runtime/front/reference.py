"""The tables of docs/reference/http.md, from the request models, the limits and the codes of errors.

`python -m graphpod_runtime.front.reference PAGE` writes each table between its two marks in the page; a test
compares.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from graphpod_policy.config import ServingConfig
from graphpod_policy.http_limits import BODY_RATE
from graphpod_policy.http_limits import DEFAULT_LIMITS as HTTP
from graphpod_runtime.front.anthropic import blocks
from graphpod_runtime.front.anthropic import request as anthropic
from graphpod_runtime.front.openai import fields, parse, service, unbuilt_fields
from graphpod_runtime.front.openai.embeddings import request as vectors
from graphpod_runtime.front.openai.embeddings import routes as vector_routes
from graphpod_runtime.front.openai.request import (
    UNUSED,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from graphpod_runtime.front.openai.responses import items, routes, store
from graphpod_runtime.front.openai.responses import request as responses
from graphpod_runtime.front.openai.responses.request import ResponsesRequest
from graphpod_runtime.front.openai.sampling import choices, sampling_fields, truncation
from graphpod_runtime.front.openai.structured import check
from graphpod_runtime.front.openai.turn import tool_fields
from graphpod_runtime.front.request_id import MAX_LENGTH
from graphpod_runtime.front.requests.engine_stream import MOST_WAITING
from graphpod_runtime.front.requests.errors import SHOWN, Code
from graphpod_runtime.front.server import connection
from graphpod_runtime.grammar import bounds, structural_tag

MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

FIRST_WORD = re.compile(r"(?<=\w)\b")
"""Where the first word ends, and its plural's letter goes."""

Rows = Iterable[tuple[str, ...]]

CODES: dict[Code, tuple[int, str]] = {
    "invalid_json": (400, "Send a JSON object in UTF-8, with `content-type: application/json`."),
    "invalid_type": (400, "The field has another type than the tables above say."),
    "invalid_value": (400, "The message names the bound or the values that the field may have."),
    "invalid_grammar": (400, "What the answer must be is wrong, too large or not supported. The message says why."),
    "missing_required_parameter": (400, "Send the field that `param` names."),
    "unsupported_parameter": (400, "The field exists and is not built. Leave it out."),
    "context_length_exceeded": (400, "Prompt and answer exceed the context. The message has the numbers."),
    "previous_response_not_found": (
        400,
        "This pod does not have that response. Send the conversation as `input`.",
    ),
    "invalid_http": (400, "The request is not HTTP/1.1, or breaks a limit of the connection. It was closed."),
    "invalid_api_key": (401, "Send the service's key as `Authorization: Bearer KEY` or `x-api-key: KEY`."),
    "model_not_found": (404, "The message names the model that is served."),
    "response_not_found": (404, "This pod has no such response: it is too old, was deleted, or another pod has it."),
    "unknown_url": (404, "The message lists the endpoints."),
    "method_not_supported": (405, "Use the method in `Allow`."),
    "request_timeout": (408, "The body stopped coming, or came too slowly. Send the request again."),
    "slow_reader": (408, "Only as an event: the client did not read its stream. Read faster, or ask for less."),
    "request_too_large": (413, "The body has too many bytes or values. Shorten the prompt, or send fewer at once."),
    "unsupported_content_encoding": (415, "Send the body uncompressed."),
    "header_too_large": (431, "Send fewer or shorter header fields."),
    "engine_error": (500, "The server or the engine failed on this request; the pod's log says why."),
    "not_ready": (503, "The pod starts or restarts. Retry."),
    "draining": (503, "The pod stops. Retry; another pod answers."),
    "asleep": (503, "The weights are away or are replaced. Retry; another pod answers."),
    "queue_full": (503, "Too many requests or prompt tokens are open. Retry later, or add replicas."),
    "bodies_full": (503, "Open requests hold too many bytes of prompts. Retry later."),
    "too_many_connections": (503, "Too many connections are open. Reuse connections, or retry later."),
}
"""Status, and what to do."""

LIMITS: tuple[tuple[str, str], ...] = (
    (
        "body",
        f"{HTTP.body_bytes >> 20} MiB (`bodySize`). {HTTP.body_seconds} s between two pieces of it (`bodyTimeout`). "
        f"The whole body gets this time, and 1 s more for each {BODY_RATE >> 10} KiB that came",
    ),
    ("bodies that one pod reads at a time", f"{HTTP.bodies_bytes >> 20} MiB together: 16 times `bodySize`"),
    ("strings, lists and objects of one body", f"{parse.MAX_NODES}"),
    ("items and fields of one body", f"{parse.MAX_ITEMS}"),
    ("messages of a conversation, prompts of a completion", f"{fields.MAX_MESSAGES}"),
    (
        "open requests of one pod, where each answer to each prompt counts as one",
        f"`maxBatch` + {ServingConfig().max_queue}. Tokens of their prompts: those of the KV cache "
        f"× (`maxBatch` + {ServingConfig().max_queue}) / `maxBatch`",
    ),
    ("stop strings", f"{fields.MAX_STOPS}, each of at most {fields.MAX_STOP_LENGTH} characters"),
    ("stop tokens", f"{fields.MAX_STOPS}"),
    ("answers to one prompt (`n`, `best_of`)", f"{sampling_fields.MAX_CHOICES}"),
    ("tokens of prompts that several answers repeat (`echo`, `return_token_ids`)", f"{choices.MAX_REPEATED}"),
    ("tokens of `logit_bias` or `allowed_token_ids`", f"{sampling_fields.MAX_BIASED}"),
    (
        "`bad_words`",
        f"{sampling_fields.MAX_BAD_WORDS}, each of at most {sampling_fields.MAX_BAD_WORD} characters",
    ),
    ("tokens of `logprob_token_ids`", f"{sampling_fields.MAX_SCORED}"),
    (
        "tokens of a text that `truncate_prompt_tokens` cuts",
        f"{truncation.CUT_CONTEXTS} times the context, before the cut",
    ),
    ("alternatives with log-probabilities", f"{fields.MAX_ALTERNATIVES} for each token"),
    (
        "log-probabilities of a prompt (`echo`, `prompt_logprobs`)",
        f"{service.MAX_NAMED} = prompt tokens × answers that carry them × (1 + alternatives)",
    ),
    ("`cache_salt`", f"{fields.MAX_SALT} characters"),
    ("`chat_template_kwargs`", f"{fields.MAX_VARIABLES} bytes as JSON, {fields.MAX_DEPTH} levels"),
    ("a grammar, or a JSON schema", f"{bounds.MAX_CHARACTERS} characters; a schema {bounds.MAX_DEPTH} levels"),
    ("properties of one object of a schema", f"{bounds.MAX_PROPERTIES}"),
    ("values of one `enum`, strings of `choice`", f"{bounds.MAX_OPTIONS}"),
    ("`$ref`s of a schema, its definitions, rules of a grammar", f"{bounds.MAX_REFERENCES} each"),
    ("the value of `multipleOf` in a schema", f"{bounds.MAX_MULTIPLE}"),
    ("`whitespace_pattern`", f"{bounds.MAX_BLANKS} characters"),
    (
        "parts of a structural tag",
        f"{structural_tag.MAX_PARTS}, each with at most {structural_tag.MAX_TAGS} triggers, tags or elements",
    ),
    ("the time to compile a grammar", f"{check.SECONDS:.0f} s"),
    (
        "tools",
        f"{tool_fields.MAX_TOOLS}, {tool_fields.MAX_TOOLS_BYTES >> 20} MiB together as JSON, "
        f"each with {tool_fields.MAX_TOOL_DEPTH} levels of parameters",
    ),
    ("tool calls of one earlier turn", f"{fields.MAX_TOOL_CALLS}"),
    ("inputs of an embedding, texts of a score", f"{vectors.MAX_INPUTS}"),
    ("numbers of all vectors of one answer", f"{vector_routes.MAX_NUMBERS}"),
    ("conversation of a stored response", f"{routes.MAX_CONVERSATION_BYTES >> 20} MiB, {fields.MAX_MESSAGES} turns"),
    ("content parts of one item", f"{items.MAX_PARTS}"),
    (
        "stored responses of one pod",
        f"{store.MAX_RESPONSES}, {store.MAX_BYTES >> 20} MiB together, for {store.MAX_AGE_SECONDS / 60:.0f} minutes",
    ),
    ("address and header", f"{connection.HEADER_BYTES >> 10} KiB, within {HTTP.header_seconds} s (`headerTimeout`)"),
    ("`x-request-id`", f"{MAX_LENGTH} characters"),
    ("names in `x-ignored-fields`", f"{unbuilt_fields.MAX_IGNORED}, each of {SHOWN} characters; more are counted"),
    ("tokens of `/detokenize`", "the model's context"),
    ("connections of one pod", f"{connection.MAX_CONNECTIONS}, fewer where the limit of open files is low"),
    ("requests sent ahead on one connection", f"{connection.MAX_AHEAD}"),
    ("a stream's client reads nothing", f"{HTTP.read_seconds} s (`readTimeout`), or {MOST_WAITING} tokens that wait"),
    ("the client of another answer reads nothing", f"{HTTP.unread_seconds} s: three times `readTimeout`"),
)


def tables() -> dict[str, str]:
    """Every table, by the name in its mark."""
    own = ("Field", "Type", "Required", "Meaning")
    chat, text = list(_fields(ChatRequest.model_json_schema())), list(_fields(CompletionRequest.model_json_schema()))
    both = [row for row in chat if row in text]
    conversation = [row for row in chat if not row[0].startswith("`messages`")]
    unused = [row for row in both if row[0].strip("`") in UNUSED]
    return {
        "shared": _table(own, (row for row in both if row not in unused)),
        "chat": _table(own, (row for row in chat if row not in both)),
        "completions": _table(own, (row for row in text if row not in both)),
        "no-effect": _table(("Field", "Type", "Meaning"), ((name, kind, words) for name, kind, _, words in unused)),
        "not-built": _table(("Field", "Endpoint", "Accepted values"), _not_built()),
        "responses": _table(own, (row for row in _fields(ResponsesRequest.model_json_schema()) if row not in both)),
        "responses-not-built": _table(("Field", "Accepted values"), _responses_not_built()),
        "messages": _table(
            own, (row for row in _fields(anthropic.MessagesRequest.model_json_schema()) if _is_own(row, both))
        ),
        "messages-not-built": _table(("Field", "Accepted values"), _messages_not_built()),
        "vectors": _table(own, _fields(vectors.VectorRequest.model_json_schema())),
        "embeddings": _table(own, (row for row in _own(vectors.EmbeddingRequest) if row not in conversation)),
        "score": _table(own, _own(vectors.ScoreRequest)),
        "rerank": _table(own, _own(vectors.RerankRequest)),
        "vectors-not-built": _table(("Field", "Endpoint", "Accepted values"), _vectors_not_built()),
        "tokenize": _table(own, _fields(TokenizeRequest.model_json_schema(), deep=False)),
        "detokenize": _table(own, _fields(DetokenizeRequest.model_json_schema())),
        "limits": _table(("What", "At most"), LIMITS),
        "codes": _table(
            ("Code", "Status", "What to do"), ((f"`{code}`", str(status), do) for code, (status, do) in CODES.items())
        ),
    }


def filled(page: str) -> str:
    """The page with each table as it is now. KeyError for a mark that no table has."""
    made = tables()
    return MARKED.sub(lambda mark: f"{mark[1]}\n{made[mark[2]]}\n{mark[3]}", page)


def _not_built() -> Iterator[tuple[str, str, str]]:
    chat, text = unbuilt_fields.CHAT_NOT_BUILT, unbuilt_fields.TEXT_NOT_BUILT
    for name, neutral in (chat | text).items():
        where = "chat, completions" if name in chat and name in text else "chat" if name in chat else "completions"
        yield f"`{name}`", where, _neutral(neutral)
    for name, neutral in unbuilt_fields.MESSAGE_NOT_BUILT.items():
        yield f"`messages[].{name}`", "chat", _neutral(neutral)


def _responses_not_built() -> Iterator[tuple[str, str]]:
    """Those that a chat does not have."""
    for name, neutral in (ResponsesRequest.not_built | responses.NOT_HERE).items():
        if name not in unbuilt_fields.CHAT_NOT_BUILT and name != "max_tokens":
            yield f"`{name}`", _neutral(neutral)
    for name, neutral in items.NOT_BUILT.items():
        yield f"`input[].{name}`", _neutral(neutral)


def _is_own(row: tuple[str, ...], shared: list[tuple[str, ...]]) -> bool:
    """Whether a field of a message is its own; those that it does not have are refused."""
    name = row[0].strip("`").partition(".")[0]
    return row not in shared and name not in (*anthropic.NOT_HERE, *UNUSED)


def _messages_not_built() -> Iterator[tuple[str, str]]:
    """Those that a chat does not have, or has."""
    for name, neutral in (anthropic.NOT_BUILT | anthropic.NOT_HERE).items():
        if name not in unbuilt_fields.CHAT_NOT_BUILT:
            yield f"`{name}`", _neutral(neutral)
    for table, where in ((blocks.NOT_BUILT, "messages[].content[]"), (anthropic.TOOL_NOT_BUILT, "tools[]")):
        for name, neutral in table.items():
            yield f"`{where}.{name}`", _neutral(neutral)


def _own(model: type[vectors.VectorRequest]) -> Iterator[tuple[str, ...]]:
    """The fields that other requests for vectors do not have."""
    shared = vectors.VectorRequest.model_fields
    rows = _fields(model.model_json_schema(), deep=False)
    return (row for row in rows if row[0].strip("`") not in shared)


def _vectors_not_built() -> Iterator[tuple[str, str, str]]:
    for name, neutral in vectors.TEXTS_NOT_BUILT.items():
        yield f"`{name}`", "all" if name in vectors.NOT_BUILT else "score, rerank", _neutral(neutral)


def _neutral(neutral: tuple[Any, ...]) -> str:
    return ", ".join(f"`{json.dumps(word)}`" for word in neutral) or "none"


def _fields(
    schema: Mapping[str, Any], path: str = "", defs: Mapping[str, Any] | None = None, *, deep: bool = True
) -> Iterator[tuple[str, ...]]:
    """Name, type, whether it is required, meaning: of each field, and of those of the objects below it."""
    defs = schema.get("$defs", {}) if defs is None else defs
    for name, field in schema["properties"].items():
        required = "yes" if name in schema.get("required", ()) else ""
        yield f"`{path}{name}`", _type(field), required, " ".join(field.get("description", "").split())
        for branch in field.get("anyOf", (field,)) if deep else ():
            inner = branch.get("items", branch)
            for one in inner.get("oneOf", (inner,)):
                if "$ref" not in one:
                    continue
                below = defs[one["$ref"].rpartition("/")[2]]
                kind = below["properties"]["type"]["const"] if "oneOf" in inner else ""
                yield from _fields(below, f"{path}{name}{f'[{kind}]' if 'items' in branch else ''}.", defs)


def _type(schema: Mapping[str, Any]) -> str:
    """In words, with bounds."""
    if "anyOf" in schema:
        branches = (_type(branch) for branch in schema["anyOf"] if branch.get("type") != "null")
        return " or ".join(dict.fromkeys(branches))
    if "$ref" in schema or "oneOf" in schema:
        return "object"
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{word}`" for word in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "value")
    if kind == "array":
        most = f"at most {schema['maxItems']} " if "maxItems" in schema else ""
        return f"list of {most}{_plural(_type(schema['items']))}"
    if kind == "object":
        values = schema.get("additionalProperties")
        of = f" of {_plural(_type(values).partition(',')[0])}" if isinstance(values, dict) and "type" in values else ""
        return f"object{of}, at most {schema['maxProperties']}" if "maxProperties" in schema else "object"
    if kind == "string":
        return f"string of at most {schema['maxLength']} characters" if "maxLength" in schema else "string"
    return f"{kind}{_range(schema)}"


def _plural(kind: str) -> str:
    """Its first word in the plural."""
    return re.sub(FIRST_WORD, "s", kind, count=1)


def _range(schema: Mapping[str, Any]) -> str:
    """The bounds of a number; those of its 32 or 64 bits are none that a client meets."""
    least, most = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    if least is None or least < -(2**30):
        return ""
    above = "above " if "exclusiveMinimum" in schema else ""
    return f", {above}{least} to {most}" if most is not None else f", {above}{least} or more"


def _table(head: tuple[str, ...], rows: Rows) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(filled(target.read_text()))
