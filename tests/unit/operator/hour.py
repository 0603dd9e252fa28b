"""An hour of a service whose engine dies in captures, from one happening to the next, by a clock moved by hand.

The kubelet of the story starts the engine again after 10 s, 20 s, 40 s … 300 s, as a kubelet does, and the controller
of the story replaces the pod when the Deployment's template is another.
"""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphpod_operator.api.names import HASH_ANNOTATION, TEMPLATE_ANNOTATION
from graphpod_operator.kube.resources import Resource
from tests.unit.operator.objects import NAMESPACE, pod, report
from tests.unit.operator.world import World

START_SECONDS = 30
"""From the start of a run to its death or its Ready."""
LOOK_SECONDS = 5
"""Until the operator looks once more after something has happened."""

Dies = Callable[[dict[str, str]], tuple[int, str] | None]
"""Exit code and message of an engine that runs these policies, by phase; None: it lives."""


@dataclass
class Run:
    """The one pod of the service."""

    number: int
    hash: str
    template: Any
    began: float
    restarts: int = 0
    running: bool = True
    until: float = 0.0
    ended: tuple[int, str] | None = None
    ready: bool = False
    since: float = 0.0
    """When it changed last."""

    @property
    def name(self) -> str:
        return f"demo-abc-{self.number}"


class Hour:
    """The story so far. `walk` holds the policies of every template that was rolled out."""

    def __init__(self, world: World, dies: Dies) -> None:
        self.world, self.dies = world, dies
        self.walk: list[dict[str, str]] = []
        self.templates: list[Any] = []
        self.capture_failures = 0
        self.statuses: list[tuple[str, str]] = []
        self._run: Run | None = None
        self._pods = 0

    @property
    def deployment(self) -> dict[str, Any]:
        return self.world.deployment

    async def pass_by(self, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> None:
        """So many seconds; `meanwhile` happens before every look of the operator."""
        end = self.world.clock.now + seconds
        await self.world.relist()
        await self.world.reconcile()
        while self.world.clock.now < end:
            self.world.clock.now = min(end, self._next())
            self._play()
            meanwhile()
            await self.world.relist()
            await self.world.reconcile()
            ready = self.world.condition("Ready")
            if [ready] != self.statuses[-1:]:
                self.statuses.append(ready)

    def _next(self) -> float:
        """When something happens, or the operator looks at what did."""
        now, run = self.world.clock.now, self._run
        if run is None or run.template != self.deployment["spec"]["template"] or run.since == now:
            return now + LOOK_SECONDS
        if run.ready:
            return float("inf")
        return run.began + START_SECONDS if run.running else run.until

    def _play(self) -> None:
        template = self.deployment["spec"]["template"]
        now = self.world.clock.now
        if self._run is None or self._run.template != template:
            if self._run is not None:
                del self.world.cluster.objects[Resource.Pod, NAMESPACE, self._run.name]
            self._pods += 1
            config_hash = template["metadata"]["annotations"][HASH_ANNOTATION]
            self._run = Run(self._pods, config_hash, copy.deepcopy(template), now, since=now)
            self.walk.append(self._policies(config_hash))
            self.templates.append(self._run.template)
        run = self._run
        death = self.dies(self._policies(run.hash))
        if run.running and not run.ready and now >= run.began + START_SECONDS:
            run.since = now
            if death is None:
                run.ready = True
            else:
                self.capture_failures += 1
                run.running, run.ended = False, death
                run.until = now + min(300, 10 * 2**run.restarts)
        elif not run.running and now >= run.until:
            run.running, run.began, run.since, run.restarts = True, now, now, run.restarts + 1
        self._show(run)

    def _policies(self, config_hash: str) -> dict[str, str]:
        data = self.world.cluster.objects[Resource.ConfigMap, NAMESPACE, f"demo-engine-{config_hash}"]["data"]
        graph = json.loads(data["engine.json"])["graph"]
        return {phase: graph[phase]["planned"] for phase in ("prefill", "decode")}

    def _show(self, run: Run) -> None:
        engine: dict[str, Any] = {}
        if run.ended is not None:
            code, message = run.ended
            ended = {"terminated": {"exitCode": code, "reason": "Error", "message": message}}
            waits = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
            engine = {"lastState": ended} if run.running else {"state": waits, "lastState": ended}
        policies = self._policies(run.hash)
        seen = pod(
            run.name, run.hash, ready=run.ready, running=run.running, restarts=run.restarts, engine=engine,
            container=f"containerd://{run.number}-{run.restarts}",
            template=run.template["metadata"]["annotations"][TEMPLATE_ANNOTATION],
        )  # fmt: skip
        self.world.cluster.put(Resource.Pod, seen)
        state = "Ready" if run.ready else "Capturing"
        self.world.ports.report = report(run.name, run.hash, state, policies["prefill"], policies["decode"])
        serving = int(run.ready)
        counts = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": serving, "availableReplicas": serving}
        self.deployment["status"] = {"observedGeneration": 10**6, **counts}
        self.world.cluster.put(Resource.Deployment, self.deployment)
