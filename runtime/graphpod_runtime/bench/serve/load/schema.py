"""The JSON schema of answers under a grammar: `response_format`, which engines that speak OpenAI's API share."""

from typing import Any

ITEM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "count": {"type": "integer"},
        "state": {"enum": ["queued", "running", "done"]},
    },
    "required": ["name", "count", "state"],
    "additionalProperties": False,
}
ANSWER = {"type": "array", "items": ITEM, "minItems": 1000}
"""No answer ends before its `max_tokens`, whatever a model would say: with and without a schema as many tokens come."""
RESPONSE_FORMAT: dict[str, Any] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": ANSWER}}
