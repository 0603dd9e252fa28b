"""Logs: one JSON object a line on standard error, so that a collector needs no pattern to read them."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime


class JsonFormatter(logging.Formatter):
    """time, level, logger, message; and the traceback of an error, if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure(level: str) -> None:
    """Send everything of `level` and above to standard error; of kopf only warnings and worse."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLogger().level))
    # a watch that ended is told by `watch` in one line; here once more for each kind, with a traceback
    logging.getLogger("kopf._core.reactor.orchestration").setLevel(logging.CRITICAL)
