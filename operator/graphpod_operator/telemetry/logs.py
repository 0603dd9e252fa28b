"""Logs: a line says when, how grave, who speaks, of which object, what, and what varies, in fields of their own.

So one thing always has the same message, and all lines about a service are found without a pattern.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum

FIELDS = ("child", "error", "holder", "kind", "pods", "reason", "revision", "seconds", "services", "why")
"""What a line may hold besides its message, given to the logger as `extra`; `object` overrides the current one."""

TOLD_BY_WATCH = ("kopf._core.reactor.orchestration", "kopf._core.reactor.running")
"""They say once more, with tracebacks, what `manager.kopf_thread` says in one line of a run of kopf that ended."""

_spoken_of: ContextVar[str] = ContextVar("object", default="")


class Format(StrEnum):
    """How a line is written."""

    Json = "json"
    """One JSON object, for a collector."""
    Text = "text"
    """For a person at a terminal."""


@contextlib.contextmanager
def about(thing: object) -> Iterator[None]:
    """Every line of this task, and of the tasks it begins, is about `thing`: a namespace/name."""
    token = _spoken_of.set(str(thing))
    try:
        yield
    finally:
        _spoken_of.reset(token)


class _Formatter(logging.Formatter):
    """The parts of a line, in their order; what is absent has no key."""

    def parts(self, record: logging.LogRecord) -> dict[str, object]:
        fields = {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        return {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **({"object": thing} if (thing := getattr(record, "object", _spoken_of.get())) else {}),
            "message": record.getMessage(),
            **{name: value if isinstance(value, int | float) else str(value) for name, value in fields.items()},
            **({"traceback": self.formatException(record.exc_info)} if record.exc_info else {}),
        }


class JsonFormatter(_Formatter):
    """Everything in one JSON object, tracebacks as well."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        return json.dumps(self.parts(record))


class TextFormatter(_Formatter):
    """Time, level, who, of what: message, and the fields as name=value; tracebacks below."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, but for a traceback."""
        parts = self.parts(record)
        who = str(parts["logger"]).removeprefix("graphpod_operator.")
        head = " ".join(filter(None, (f"{parts['time']} {parts['level']:<7} {who}", str(parts.get("object", "")))))
        fields = [f"{name}={_quoted(str(parts[name]))}" for name in FIELDS if name in parts]
        line = " ".join([f"{head}: {parts['message']}", *fields])
        return "\n".join(filter(None, (line, str(parts.get("traceback", "")))))


FORMATTERS: dict[Format, type[_Formatter]] = {Format.Json: JsonFormatter, Format.Text: TextFormatter}


def configure(level: str, format: Format) -> None:
    """Send everything of `level` and above to standard error; of kopf only warnings and worse."""
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATTERS[format]())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLogger().level))
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)  # kopf's probe has a line for each answer
    for name in TOLD_BY_WATCH:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False) if not value or {" ", '"', "="} & set(value) else value
