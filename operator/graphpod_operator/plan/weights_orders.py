"""What the annotations graphpod.dev/sleep and graphpod.dev/reload want of a service's pods, and what each pod is asked
next for that. Pure: the pods' own words and the annotations decide, so a new operator goes on where the last one ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphpod_operator.api.names import RELOAD_ANNOTATION, SLEEP_ANNOTATION
from graphpod_operator.cache.service import ANNOTATION_MAX, Service
from graphpod_operator.telemetry.label_values import Command

AWAKE, ASLEEP, FALLING_ASLEEP, WAKING = "Awake", "Asleep", "FallingAsleep", "Waking"
STANDING = (AWAKE, ASLEEP)
"""Where weights stay; in any other state they are on their way."""
SLEEP_VALUES = ("true", "false")
SPREAD = ("tensor", "pipeline", "nodes")
"""Of spec.parallelism, what gives an engine several ranks."""


@dataclass(frozen=True, slots=True)
class PodWeights:
    """A pod of the planned form that has proved its graphs, and what it reports of its weights."""

    uid: str
    name: str
    ready: bool
    state: str
    idle: bool
    """It sleeps because no request came: it is Ready, and the next request wakes it."""
    revision: str
    """Of the last reload that was done; empty since the start."""
    refused: str | None
    """The revision of the last command, if that was a reload and could not be obeyed."""
    problem: str | None
    """Why the last command could not be obeyed."""
    freed: int
    """Bytes of the device, by the last sleep."""

    @property
    def commanded(self) -> bool:
        """Whether it sleeps, or falls asleep, until it is woken."""
        return self.state == FALLING_ASLEEP or (self.state == ASLEEP and not self.idle)

    @property
    def slept(self) -> bool:
        """Whether it sleeps until it is woken."""
        return self.state == ASLEEP and not self.idle

    @property
    def trouble(self) -> str | None:
        """Why it could not sleep or wake."""
        return self.problem if self.refused is None else None


@dataclass(frozen=True, slots=True)
class Wish:
    """What a service's annotations ask for. A `not_asleep` or `not_reloaded` says why that cannot be done. While it is
    `paused`, its pods get no orders.
    """

    asleep: bool = False
    revision: str | None = None
    not_asleep: str = ""
    not_reloaded: str = ""
    paused: bool = False

    @property
    def sleeps(self) -> bool:
        """Whether its pods are to sleep."""
        return self.asleep and not self.not_asleep

    @property
    def reloads(self) -> bool:
        """Whether its pods are to serve the weights of `revision`."""
        return self.revision is not None and not self.not_reloaded


@dataclass(frozen=True, slots=True)
class Order:
    """One command for one pod."""

    uid: str
    command: Command
    revision: str = ""


def wish(found: Service) -> Wish:
    """What the annotations of a service ask for, whose spec is valid."""
    return Wish(
        asleep=found.sleep not in (None, "false"),
        revision=found.reload,
        not_asleep=_not_asleep(found.sleep, found.spec),
        not_reloaded=_not_reloaded(found.reload, found.spec),
        paused=found.paused,
    )


def _not_asleep(value: str | None, spec: Mapping[str, Any]) -> str:
    engine = spec.get("engine") or {}
    if value not in (None, *SLEEP_VALUES):
        return f'{SLEEP_ANNOTATION} is {value[:32]!r}; set it to "true", or remove it'
    if not engine.get("sleep"):
        if (field := _never(spec)) is not None:
            return f"sleep with {field} is not built in this version; suspend the service instead"
        return "spec.engine.sleep is not true; set it, which restarts the pods once"
    return _closed(engine, Command.Sleep)


def _not_reloaded(value: str | None, spec: Mapping[str, Any]) -> str:
    engine, uri = spec.get("engine") or {}, str(spec["model"]["uri"])
    if value is not None and not (0 < len(value) <= ANNOTATION_MAX and value.isprintable()):
        return f"{RELOAD_ANNOTATION} is not 1 to {ANNOTATION_MAX} printable characters; set another value"
    if not uri.startswith("pvc://"):
        scheme = uri.partition("://")[0][:16]
        return f"each revision of {scheme}:// has a folder of its own; name the new one in spec.model.uri: pods restart"
    if not engine.get("reload"):
        if (field := _never(spec)) is not None:
            return f"new weights in place with {field} are not built in this version; restart the pods to serve them"
        return "spec.engine.reload is not true; set it: the restart reads the new weights"
    return _closed(engine, Command.Reload)


def _never(spec: Mapping[str, Any]) -> str | None:
    """What of a spec, that does not ask for it, goes with neither sleep nor new weights: `can_start` refuses both."""
    counts = spec.get("parallelism") or {}
    spread = ((name, counts.get(name) or 1) for name in SPREAD)
    several = " and ".join(f"spec.parallelism.{name} {count}" for name, count in spread if count > 1)
    return several or ("spec.model.stream" if spec["model"].get("stream") else None)


def _closed(engine: Mapping[str, Any], command: Command) -> str:
    """The operator reads no Secret, so it cannot send the key that the admin port requires."""
    if engine.get("apiKeySecretRef") is None:
        return ""
    return (
        "the pods of spec.engine.apiKeySecretRef require its key, which the operator does not read; send each pod "
        f"POST /{command} with the key"
    )


def orders(
    wanted: Wish, pods: Sequence[PodWeights], asked: int, settled: bool, earlier: Sequence[PodWeights] = ()
) -> tuple[Order, ...]:
    """What to send now to these pods, of `asked` that the service is to have, and to those of an `earlier` form.

    `settled`: the Deployment has finished its rollout. A pod that sleeps before that counts as unavailable, and would
    hold up the rollout until its deadline. So would one that reloads. A pod whose weights are on their way is left
    alone, except that one that falls asleep can be woken. So can those of an earlier form: they serve until the rollout
    replaces them, which may not come to an end.
    """
    if wanted.paused:
        return ()
    if wanted.sleeps:
        due = [one for one in pods if one.state == AWAKE or (one.state == ASLEEP and one.idle)]
        return tuple(Order(one.uid, Command.Sleep) for one in due) if settled else ()
    reload = _reload(wanted, pods, asked, settled)
    wakes = (Order(one.uid, Command.Wake) for one in (*pods, *earlier) if one.commanded)
    return (*(one for one in wakes if reload is None or one.uid != reload.uid), *((reload,) if reload else ()))


def _reload(wanted: Wish, pods: Sequence[PodWeights], asked: int, settled: bool) -> Order | None:
    """The next pod to get the weights of the wanted revision: one at a time, while all others serve.

    One that refuses them ends it: the others keep what they serve until the annotation has another value. A pod that
    cannot wake gets them, too: weights that were replaced while it slept come back by a reload alone.
    """
    if not wanted.reloads or wanted.revision is None or not settled or len(pods) < asked:
        return None
    if any(one.refused == wanted.revision or one.state not in STANDING for one in pods):
        return None
    due = [one for one in pods if one.revision != wanted.revision and not (one.slept and one.trouble is None)]
    first = min(due, key=lambda one: (one.ready, one.name), default=None)
    if first is None or not all(one.ready or one.slept for one in pods if one is not first):
        return None
    return Order(first.uid, Command.Reload, wanted.revision)
