"""When a new status is worth a write: at once if it says anything but progress, else every 5 s or 20 %."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphpod_operator.observe import Key

SECONDS = 5.0
STEP = 0.2
"""Part of all planned sizes."""


class Progress:
    """Remembers when the progress of each service was last written."""

    def __init__(self) -> None:
        self._written: dict[Key, float] = {}

    def is_worth_writing(self, key: Key, old: Mapping[str, Any], new: Mapping[str, Any], now: float) -> bool:
        """Whether `new` is to be written over `old` at `now` (seconds, any clock that only goes forward).

        True counts as written.
        """
        if old == new:
            return False
        only_progress = _without_progress(old) == _without_progress(new)
        step = abs(_ratio(new) - _ratio(old))
        if only_progress and step < STEP and now - self._written.get(key, float("-inf")) < SECONDS:
            return False
        self._written[key] = now
        return True

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._written.pop(key, None)


def _without_progress(status: Mapping[str, Any]) -> dict[str, Any]:
    graph = {name: value for name, value in (status.get("graph") or {}).items() if name != "captured"}
    for phase in ("prefill", "decode"):
        if phase in graph:
            graph[phase] = {name: value for name, value in graph[phase].items() if name != "sizes"}
    return {**status, "graph": graph}


def _ratio(status: Mapping[str, Any]) -> float:
    captured, _, planned = str((status.get("graph") or {}).get("captured", "0/0")).partition("/")
    return int(captured) / int(planned) if int(planned or 0) else 0.0
