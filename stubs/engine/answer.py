"""What an engine's /warmup answers: its report, or what a fault puts in its place. Process and fleet both send it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stubs.engine.story import AWAKE, Story

HUGE = 1 << 20  # bytes; far more than anybody should read of a report
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response; its length is the sender's to tell."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


INSTEAD = {
    "huge": Answer(200, b'{"state": "' + b"x" * HUGE + b'"}', JSON),
    "malformed": Answer(200, b'{"podUID": ', JSON),
    "error": Answer(500, b"Internal Server Error"),
    "redirect": Answer(302, b"", {"Location": "/livez"}),
}
"""By the word of the fault `answer:<word>`."""


def warmup(
    story: Story,
    at: float,
    pod_uid: str,
    config_hash: str,
    scraped_at: float | None = None,
    sleep: Mapping[str, Any] = AWAKE,
) -> Answer:
    """The answer `at` seconds after the start. Whether one comes at all is for Story.silent and Story.mute to say."""
    if story.answer:
        return INSTEAD[story.answer]
    return Answer(200, json.dumps(story.report(at, pod_uid, config_hash, scraped_at, sleep)).encode(), JSON)
