"""Somebody scales a service by hand while its autoscaler decides: `kubectl scale` succeeds, and nothing comes of it."""

from __future__ import annotations

from graphpod_operator.cache.key import Key
from graphpod_operator.cache.service import Service


class IgnoredReplicas:
    """The number of pods that each spec asked for when it was looked at last."""

    def __init__(self) -> None:
        self._asked: dict[Key, tuple[str, object]] = {}

    def ignored(self, found: Service) -> str | None:
        """What is ignored, once after each change of spec.replicas while spec.autoscaling decides."""
        before, asked = self._asked.get(found.key), (found.uid, found.spec.get("replicas"))
        self._asked[found.key] = asked
        if before is None or before[0] != found.uid or before == asked or not found.spec.get("autoscaling"):
            return None
        return f"spec.replicas {asked[1]} is ignored while spec.autoscaling decides"

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._asked.pop(key, None)
