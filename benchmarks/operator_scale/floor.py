"""The floor: the same objects, written by a client that does nothing else, on a cluster that does its own part or none.

No operator runs. The client knows what to write, reads nothing, watches nothing and reports nothing: for each service
it sends the InferenceService and then its children, by the same server-side apply and in the same order, for as many
services at a time as the operator has workers. What an operator takes beyond that is the price of looking, watching
and reporting. It is no bound: who sends in another order, or more at a time, may be faster.
"""

import asyncio
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.operator_scale import services
from benchmarks.operator_scale.bed import USER, laid
from benchmarks.operator_scale.measure import children, names
from graphpod_operator.cache.service import Service
from graphpod_operator.cli import WORKERS
from graphpod_operator.kube.field_ownership import FIELD_MANAGER
from graphpod_operator.plan.desired_child import DesiredChild
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from tests.api.operator.process import INSTALLED

APPLY = {"Content-Type": "application/apply-patch+yaml"}
TOLD_EVERY = 100  # services


@dataclass(frozen=True)
class Floor:
    """What was found. Seconds are wall-clock."""

    services: int
    fill_seconds: float  # first create → last child
    cpu: dict[str, float]  # CPU s of each component until then


def floor(count: int, name: str, folder: Path, api_server: tuple[str, ...] = (), *, alone: bool = False) -> Floor:
    """Measured, on a fresh cluster; `alone`: while no controller makes anything of what is written."""
    with laid(name, folder, api_server) as bed, bed.held_still() if alone else nullcontext():
        mark, before = bed.mark(), bed.cpu()
        began = asyncio.run(_written(bed.cluster.token_kubeconfig(USER), bed.cluster.kubeconfig, count))
        after = bed.cpu()
        made = children(bed.audit.since(mark).by(USER).writes())
        spent = {part: round(after[part] - before[part], 2) for part in after}
        return Floor(count, made[-1].at - began, spent)


async def _written(operator: Path, user: Path, count: int) -> float:
    """Write everything; when it began, in seconds since the epoch."""
    waiting, done, began = iter(names(count)), 0, time.time()
    async with services.connected(user) as creating, services.connected(operator) as applying:

        async def some() -> None:
            nonlocal done
            for name in waiting:
                async with creating.post(services.PATH, json=services.manifest(name)) as answer:
                    found = Service.of(await answer.json())
                outcome = desire(PlanInput(found, INSTALLED))
                assert isinstance(outcome, Desired), outcome
                for child in outcome.children:
                    await _apply(applying, child)
                done += 1
                if done % TOLD_EVERY == 0 or done == count:
                    print(f"  {time.time() - began:5.0f} s  written {done:5}", flush=True)

        await asyncio.gather(*(some() for _ in range(WORKERS)))
    return began


async def _apply(session: aiohttp.ClientSession, child: DesiredChild) -> None:
    root = f"/apis/{child.resource.api_version}" if child.resource.group else f"/api/{child.resource.version}"
    path = f"{root}/namespaces/{child.namespace}/{child.resource.plural}/{child.name}"
    body: dict[str, Any] = child.to_apply(None)
    query = {"fieldManager": FIELD_MANAGER, "force": "false"}
    async with session.patch(path, params=query, json=body, headers=APPLY) as answer:
        await answer.read()
