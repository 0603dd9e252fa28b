"""An external metrics API: `python -m stubs.external_metrics --tls FILE`, behind an APIService of the cluster.

A test says through the control port what a metric is worth: `PUT /metrics/NAMESPACE/NAME` with `7`, `"1500m"`, or
`{"value": 7, "labels": {"queue": "a"}}`; `DELETE` the same path forgets it. Autoscalers then read it as
external.metrics.k8s.io/v1beta1. Whoever reaches the port may ask; only the API server should. Standard library only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from stubs.faults.delivery import status
from stubs.faults.fault import FaultError
from stubs.web import Asked, Reply, WebStub, parser, run

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
ROOT = f"/apis/{GROUP}/{VERSION}"
_RESOURCE = {"singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}


@dataclass(frozen=True, slots=True)
class Value:
    """What a metric is worth, as a Kubernetes quantity, and its labels."""

    quantity: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def selected(self, selector: str) -> bool:
        """Whether it has every label of a selector such as `a=b,c=d`, the only kind there is here."""
        pairs = (part.partition("=") for part in selector.split(",") if part)
        return all(self.labels.get(name) == value.removeprefix("=") for name, _, value in pairs)


class ExternalMetrics:
    """The answers, from what the control port received."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], Value] = {}

    def put(self, place: str, body: bytes) -> Any:
        """The control verb that sets a metric."""
        said = json.loads(body)
        if not isinstance(said, dict):
            said = {"value": said}
        if set(said) - {"value", "labels"} or not isinstance(said.get("value"), int | float | str):
            raise FaultError(f"a metric is a number or quantity, or value and labels, not {body.decode()!r}")
        self._values[_key(place)] = Value(str(said["value"]), said.get("labels", {}))
        return said

    def delete(self, place: str, _: bytes) -> bool:
        """The control verb that forgets one; whether it was there."""
        return self._values.pop(_key(place), None) is not None

    def answer(self, asked: Asked) -> Reply:
        if asked.path == ROOT:
            names = sorted({name for _, name in self._values})
            resources = [{"name": name, **_RESOURCE} for name in names]
            return _json(
                {**_kind("APIResourceList", "v1"), "groupVersion": f"{GROUP}/{VERSION}", "resources": resources}
            )
        match asked.path.removeprefix(ROOT).strip("/").split("/"):
            case ["namespaces", namespace, name] if asked.path.startswith(ROOT):
                found = self._values.get((namespace, name))
                if found is None:
                    return refusal(404)
                selector = parse_qs(asked.query).get("labelSelector", [""])[0]
                items = [_item(name, found)] if found.selected(selector) else []
                kind = _kind("ExternalMetricValueList", f"{GROUP}/{VERSION}")
                return _json({**kind, "metadata": {}, "items": items})
        return refusal(404)


def refusal(code: int) -> Reply:
    """An API server's no."""
    return Reply(code, {"Content-Type": "application/json"}, status(code))


def _key(place: str) -> tuple[str, str]:
    namespace, _, name = place.partition("/")
    if not name or "/" in name:
        raise FaultError(f"a metric is at /metrics/NAMESPACE/NAME, not /metrics/{place}")
    return namespace, name


def _item(name: str, value: Value) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"metricName": name, "metricLabels": value.labels, "timestamp": now, "value": value.quantity}


def _kind(kind: str, version: str) -> dict[str, str]:
    return {"kind": kind, "apiVersion": version}


def _json(content: Any) -> Reply:
    return Reply(200, {"Content-Type": "application/json"}, json.dumps(content).encode())


def serve(
    tls: Path | None = None, listen: tuple[str, int] = ("127.0.0.1", 0), control: tuple[str, int] = ("127.0.0.1", 0)
) -> WebStub:
    """The API over HTTP; with a certificate and key in one PEM file, over TLS."""
    metrics = ExternalMetrics()
    verbs = {("PUT", "/metrics"): metrics.put, ("DELETE", "/metrics"): metrics.delete}
    return WebStub(metrics.answer, refusal, listen, control, verbs, tls)


def main(argv: Sequence[str]) -> int:
    words = parser("external_metrics", "An external metrics API whose values a test sets.")
    words.add_argument("--tls", type=Path, required=True, metavar="FILE", help="certificate and key, PEM")
    args = words.parse_args(argv)
    return run(serve(args.tls, (args.address, args.port), (args.address, args.control)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
