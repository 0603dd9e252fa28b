"""The passes that a service has served: from its pods' admin ports through port-forwards, or from a Prometheus.

By port-forward the counters begin with each pod's start. From Prometheus they are the difference of two moments, which
is exact where `increase()` would extrapolate. Both need no more than read-only rights.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from graphpod_operator.api.names import OWNER_LABEL, SHORT_NAME
from graphpod_operator.cache.pod import Pod
from graphpod_operator.explain.input_error import InputError
from graphpod_operator.kube import connection, port_forward
from graphpod_operator.kube.client import KubernetesCluster
from graphpod_operator.kube.cluster import ApiError
from graphpod_operator.kube.resources import Resource
from graphpod_operator.observe.ladder_use import (
    GAUGES,
    NAMES,
    NoLadderMetrics,
    PhaseUse,
    Sample,
    phase_uses,
    samples,
    together,
)
from graphpod_operator.render.pod.container import ADMIN_PORT
from graphpod_operator.render.pod_monitor import SERVICE_LABEL
from graphpod_policy import Phase

MOST_PODS = 16
"""Pods that are read by port-forward; the others count as alike."""
READ_SECONDS = 10.0
METRICS_BYTES = 1024 * 1024
PROMETHEUS_BYTES = 32 * 1024 * 1024
"""Of one answer: 100 pods with the longest ladders are 20 MiB."""
SAID = 200

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Read:
    """What was read. `seconds` is the time that the passes are of; None: since the start of each pod. `troubles` are
    pods that gave nothing, and why.
    """

    pods: tuple[str, ...]
    seconds: float | None
    uses: Mapping[Phase, PhaseUse]
    troubles: tuple[str, ...] = ()


def of_pods(namespace: str, name: str, context: str | None = None) -> Read:
    """Read the ready pods of a service by port-forward. Raises InputError where none gives an answer."""

    async def ask() -> tuple[list[Pod], list[bytes | port_forward.NoAnswer]]:
        wire = await connection.connect(lambda status, method, seconds: None, context)
        try:
            cluster = KubernetesCluster(wire)
            if await cluster.get(Resource.InferenceService, namespace, name) is None:
                raise InputError(
                    f"{SHORT_NAME}/{name} does not exist in namespace {namespace}; for another namespace: -n NAMESPACE"
                )
            listing = await cluster.list(Resource.Pod, namespace, f"{OWNER_LABEL}={name}", Pod.of)
            ready = sorted((pod for pod in listing.items if pod.ready and not pod.deleting), key=lambda pod: pod.name)
            ready = ready[:MOST_PODS]

            async def metrics(pod: Pod) -> bytes | port_forward.NoAnswer:
                try:
                    return await port_forward.get(
                        wire, namespace, pod.name, ADMIN_PORT, "/metrics", METRICS_BYTES, READ_SECONDS
                    )
                except port_forward.NoAnswer as error:
                    return error

            return ready, await asyncio.gather(*map(metrics, ready))
        finally:
            await wire.close()

    try:
        pods, answers = asyncio.run(ask())
    except ApiError as error:
        raise InputError(f"{SHORT_NAME}/{name}: {error}") from error
    if not pods:
        raise InputError(
            f"{SHORT_NAME}/{name} in namespace {namespace} has no ready pod to read; "
            f"see: kubectl describe {SHORT_NAME} {name} -n {namespace}"
        )
    texts = {pod.name: answer for pod, answer in zip(pods, answers, strict=True)}
    return _read(
        {pod: samples(text) for pod, text in texts.items() if isinstance(text, bytes)},
        None,
        [f"pod {pod}: {_printable(str(error))}" for pod, error in texts.items() if isinstance(error, Exception)],
    )


def of_prometheus(url: str, namespace: str, name: str, seconds: float) -> Read:
    """Read what a Prometheus has of a service, of the last `seconds`. Raises InputError where it has nothing."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise InputError(f"--prometheus {url}: expected a URL such as http://localhost:9090")
    if not (_NAME.fullmatch(namespace) and _NAME.fullmatch(name)):
        raise InputError(f"{namespace}/{name}: expected names as Kubernetes has them")
    names = "|".join(NAMES)
    query = f'{{__name__=~"{names}",namespace="{namespace}",{SERVICE_LABEL}="{name}"}}'

    async def ask() -> tuple[dict[str, list[Sample]], dict[str, list[Sample]]]:
        now = time.time()
        timeout = aiohttp.ClientTimeout(total=READ_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
            get = _Prometheus(session, url.rstrip("/") + "/api/v1/query").query
            return await get(query, now), await get(query, now - seconds)

    try:
        after, before = asyncio.run(ask())
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise InputError(f"--prometheus {url}: no answer: {str(error)[:SAID] or type(error).__name__}") from error
    if not after:
        raise InputError(
            f"Prometheus at {url} has no {NAMES[0]} of {namespace}/{name}; does it scrape the pods "
            f"(spec.monitoring.enabled)? Without --prometheus the pods are read directly"
        )
    return _read({pod: _difference(found, before.get(pod, [])) for pod, found in after.items()}, seconds, [])


@dataclass(frozen=True, slots=True)
class _Prometheus:
    """Instant queries."""

    session: aiohttp.ClientSession
    url: str

    async def query(self, query: str, moment: float) -> dict[str, list[Sample]]:
        """The samples at a moment, by pod."""
        async with self.session.post(
            self.url, data={"query": query, "time": f"{moment:.3f}"}, allow_redirects=False
        ) as response:
            text = await response.content.read(PROMETHEUS_BYTES + 1)
            while len(text) <= PROMETHEUS_BYTES and (more := await response.content.read(PROMETHEUS_BYTES)):
                text += more
        if len(text) > PROMETHEUS_BYTES:
            raise InputError(f"{self.url} answered more than {PROMETHEUS_BYTES >> 20} MiB")
        return by_pod(text, f"{self.url} answered {response.status}")


def by_pod(text: bytes, who: str) -> dict[str, list[Sample]]:
    """The samples of an answer by pod. Raises InputError, which begins with `who`, where it is none of Prometheus."""
    try:
        answer = json.loads(text)
        if answer["status"] != "success":
            raise InputError(f"{who}: {str(answer.get('error'))[:SAID]}")
        return _samples(answer["data"]["result"])
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{who} and is no Prometheus: {text[:80]!r}") from error


def _samples(rows: Iterable[Any]) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = defaultdict(list)
    for row in rows:
        labels = {str(label): str(value) for label, value in row["metric"].items()}
        found[labels.get("pod", "")].append(Sample(labels.pop("__name__"), labels, float(row["value"][1])))
    return found


def _difference(after: list[Sample], before: list[Sample]) -> list[Sample]:
    """What was counted in between; all of it where a counter fell, because the container has restarted."""
    base = {(one.name, tuple(sorted(one.labels.items()))): one.value for one in before if one.name not in GAUGES}
    then = [base.get((one.name, tuple(sorted(one.labels.items()))), 0.0) for one in after]
    if any(one.value < value for one, value in zip(after, then, strict=True)):
        return after
    return [Sample(one.name, one.labels, one.value - value) for one, value in zip(after, then, strict=True)]


def _printable(words: str) -> str:
    """Words of a kubelet or a pod, without what could drive a terminal."""
    return "".join(one if one.isprintable() else "?" for one in words)[:SAID]


def _read(by_pod: Mapping[str, Iterable[Sample]], seconds: float | None, troubles: list[str]) -> Read:
    """The pods together. Raises InputError where none gives anything."""
    found: dict[str, dict[Phase, PhaseUse]] = {}
    for pod, given in by_pod.items():
        try:
            found[pod] = phase_uses(given)
        except NoLadderMetrics as error:
            troubles.append(f"pod {pod}: {error}")
    if not found:
        raise InputError("; ".join(troubles[:3]))
    uses = {phase: together(one[phase] for one in found.values()) for phase in Phase}
    return Read(tuple(found), seconds, {phase: use for phase, use in uses.items() if use is not None}, tuple(troubles))
