"""Where a stub engine says its weights are: POST /sleep, /wake and /reload, with the answers of the real one. Nothing
moves, so each change is done at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from stubs.engine.answer import JSON, Answer
from stubs.engine.story import AWAKE, WEIGHTS_BYTES

PATHS = ("/sleep", "/wake", "/reload")
POD_UID = "X-Graphpod-Pod-Uid"
"""The header that names the pod an order is for."""
MOST_REVISION = 253
WHY = {
    "sleep": "set spec.engine.sleep: true",
    "reload": "set spec.engine.reload: true, or restart it",
}


class Sleeping:
    """The weights of one run, whose features are those of its configuration."""

    def __init__(self, config: bytes) -> None:
        self.said: dict[str, Any] = dict(AWAKE)
        self._features = _features(config)

    @property
    def away(self) -> bool:
        """Whether requests are kept away."""
        return bool(self.said["state"] != "Awake")

    def answer(self, url: str) -> Answer:
        """That of a POST to one of PATHS."""
        parts = urlsplit(url)
        command, query = parts.path.removeprefix("/"), parse_qs(parts.query, keep_blank_values=True)
        revision = query.get("revision", [""])[0]
        try:
            float(query.get("wait", ["60"])[0])
        except ValueError:
            return Answer(400, b"wait is a number of seconds\n")
        if command == "reload" and not (0 < len(revision) <= MOST_REVISION and revision.isprintable()):
            return Answer(400, f"reload needs ?revision=NAME, of up to {MOST_REVISION} printable characters\n".encode())
        self._obey(command, revision if command == "reload" else "")
        return Answer(409 if self.said["problem"] else 200, json.dumps(self.said).encode(), JSON)

    def _obey(self, command: str, revision: str) -> None:
        feature = "reload" if command == "reload" else "sleep"
        if not self._features.get(feature):
            problem = f"this engine cannot {feature}: {WHY[feature]}"
            self.said |= {"problem": problem, "refused": revision or None}
            return
        self.said |= {"problem": None, "refused": None}
        if command == "sleep":
            self.said |= {"state": "Asleep", "source": "Disk", "freedBytes": WEIGHTS_BYTES}
        elif command == "wake":
            self.said["state"] = "Awake"
        else:
            self.said["modelRevision"] = revision


def _features(config: bytes) -> Mapping[str, Any]:
    try:
        return dict(json.loads(config).get("features") or {})
    except (ValueError, AttributeError, TypeError):
        return {}  # the story says what is wrong with it
