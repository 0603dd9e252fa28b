"""Sends the pods of a service what `plan.weights_orders` decides, each order once.

A pod that could not obey, or was not reached, stays as it is and is asked again after a pause that doubles: also where
two orders take turns, as the wake of a pod whose weights were replaced and the reload that it refuses. The pod's
`/warmup` reports what becomes of an order.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Protocol
from urllib.parse import quote

from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.service_memory import ServiceMemory, WeightsOrdered
from graphpod_operator.kube.clock import Clock
from graphpod_operator.observe.observed_state import Observed
from graphpod_operator.observe.warmup_poller import Unreachable, Warmups
from graphpod_operator.observe.warmup_report import Reading
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.weights_orders import Order
from graphpod_operator.status.condition_findings import current_pods, earlier_pods, orders_due
from graphpod_operator.telemetry.metrics import Meters

CONCURRENCY = 16
"""Orders that are on their way at a time, of all services."""
AGAIN_SECONDS = 10.0
AGAIN_MOST = 600.0
"""Until a pod is sent the same order again: doubled each time, up to the second number."""
DOUBLED_MOST = 6
"""Times that the pause doubles: more are above the second number, and in a week no float would hold them."""


class OrdersPort(Protocol):
    """The pods' admin ports, as the operator gives orders to them."""

    async def order(self, pod: Pod, path: str) -> None:
        """POST it. Raises Unreachable where the engine neither took nor refused it."""
        ...


class WeightsSender:
    """Sends orders. What was sent stands in the service's memory; the next operator sends it once more."""

    def __init__(self, port: OrdersPort, warmups: Warmups, clock: Clock, meters: Meters) -> None:
        self._port, self._warmups, self._clock, self._meters = port, warmups, clock, meters
        self._slots = asyncio.Semaphore(CONCURRENCY)

    async def carry_out(
        self, found: Service, desired: Desired, seen: Observed, memory: ServiceMemory
    ) -> tuple[Observed, float | None]:
        """Sends what is due. What is observed with the orders that did not arrive, and the seconds until the next is
        due.
        """
        pods = {pod.uid: pod for pod in (*current_pods(desired, seen), *earlier_pods(desired, seen))}
        due = orders_due(found, desired, seen)
        now, memory.ordered = self._clock.monotonic(), _of_these(memory, pods)
        sent = [one for one in due if self._again_in(one, pods[one.uid], memory, now) <= 0]
        await asyncio.gather(*(self._send(one, pods[one.uid], memory, now, _failed(seen, one)) for one in sent))
        pauses = [self._again_in(one, pods[one.uid], memory, now) for one in due]
        last = ((one.uid, memory.ordered.get(pods[one.uid].container, {}).get(_what(one))) for one in due)
        unsent = {uid: order.failure for uid, order in last if order is not None and order.failure}
        pauses += [pause] if sent and (pause := self._warmups.weights_pause(pods.values())) is not None else []
        return replace(seen, unsent=unsent), min(pauses, default=None)

    async def _send(self, order: Order, pod: Pod, memory: ServiceMemory, now: float, failed: bool) -> None:
        """`failed`: whether the pod could not obey the order before this one."""
        before = memory.ordered.get(pod.container, {})
        times = before[what].times + 1 if (what := _what(order)) in before else 1
        query = f"wait=0&revision={quote(order.revision, safe='')}" if order.revision else "wait=0"
        failure = ""
        try:
            async with self._slots:
                await self._port.order(pod, f"/{order.command}?{query}")
        except Unreachable as error:
            failure = str(error)
        self._meters.count(
            "graphpod_operator_weights_orders_total",
            order=order.command.value,
            result="unreachable" if failure else "ok",
        )
        others = before if failed else {}
        memory.ordered[pod.container] = {**others, what: WeightsOrdered(now, times, failure)}
        self._warmups.ordered(pod.uid)

    def _again_in(self, order: Order, pod: Pod, memory: ServiceMemory, now: float) -> float:
        """Seconds until it may be sent."""
        last = memory.ordered.get(pod.container, {}).get(_what(order))
        if last is None:
            return 0.0
        pause: float = min(AGAIN_SECONDS * 2 ** min(last.times - 1, DOUBLED_MOST), AGAIN_MOST)
        return last.at + pause - now


def _failed(seen: Observed, order: Order) -> bool:
    answer = seen.readings[order.uid]
    return isinstance(answer, Reading) and answer.sleep is not None and answer.sleep.problem is not None


def _what(order: Order) -> tuple[str, str]:
    return order.command.value, order.revision


def _of_these(memory: ServiceMemory, pods: dict[str, Pod]) -> dict[str, dict[tuple[str, str], WeightsOrdered]]:
    running = {pod.container for pod in pods.values()}
    return {container: one for container, one in memory.ordered.items() if container in running}
