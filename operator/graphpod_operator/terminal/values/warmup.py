"""The warm-up of one pod, as `graphpod why` shows it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, ValidationError

from graphpod_operator.cache.pod import Pod
from graphpod_operator.observe.warmup_report import EngineValue, Reading, Seconds, Word
from graphpod_operator.terminal.values.fields import printable
from graphpod_policy import Phase
from graphpod_policy.units import duration


class StageRead(EngineValue):
    """A stage of the start that ended."""

    name: Word
    seconds: Seconds


class StartRead(Reading):
    """An answer of `/warmup`, with the stages of the start."""

    stages: Annotated[tuple[StageRead, ...], Field(max_length=64)] = ()


@dataclass(frozen=True, slots=True)
class PodState:
    """One pod: what Kubernetes knows of it, and its warm-up or why there is none."""

    pod: Pod
    start: StartRead | None
    trouble: str = ""

    @property
    def kubernetes(self) -> str:
        """Its state in Kubernetes' words."""
        pod = self.pod
        if pod.deleting:
            state = "terminating"
        elif pod.gone is not None:
            state = f"failed: {printable(pod.gone)}"
        elif pod.waiting is not None:
            state = f"waiting: {printable(pod.waiting[0])}"
        elif pod.running:
            state = "running, ready" if pod.ready else "running, not ready"
        else:
            state = "starting" if pod.placed else f"no node: {printable(pod.scheduling or 'not scheduled yet')}"
        restarts = f", {pod.restarts} restarts" if pod.restarts != 1 else ", 1 restart"
        return state + (restarts if pod.restarts else "")

    @property
    def warmup(self) -> str:
        """State of the warm-up and captured over planned sizes."""
        if self.start is None:
            return self.trouble
        graph = self.start.graph
        captured, planned = (sum(getattr(graph[one].sizes, key) for one in graph) for key in ("captured", "planned"))
        policies = ", ".join(f"{phase.value} {graph[phase].effective}" for phase in Phase if phase in graph)
        sizes = f", {captured}/{planned} captured" if planned else ""
        return f"{self.start.state}{sizes}" + (f" ({policies})" if policies else "")

    @property
    def stages(self) -> str:
        """The stages that ended, with their times."""
        found = self.start.stages if self.start is not None else ()
        return ", ".join(f"{printable(one.name)} {duration(one.seconds)}" for one in found)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for `-o json`."""
        start = self.start
        return {
            "name": self.pod.name,
            "state": self.kubernetes,
            "ready": self.pod.ready,
            "restarts": self.pod.restarts,
            "warmup": start.model_dump(mode="json", by_alias=True) if start is not None else None,
            "trouble": self.trouble or None,
        }


def start_of(pod: Pod, body: bytes) -> PodState:
    """The pod's warm-up from what its `/warmup` answered; with the reason where that is none of this pod."""
    try:
        start = StartRead.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part)[:64] for part in first["loc"])
        said = printable(": ".join(filter(None, (field, first["msg"].removeprefix("Value error, ")))))
        return PodState(pod, None, f"/warmup answered without a warm-up report: {said}")
    if start.pod_uid != pod.uid:
        return PodState(pod, None, f"/warmup answered for another pod (uid {printable(start.pod_uid)})")
    return PodState(pod, start)
