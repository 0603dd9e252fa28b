"""A rendering: what of a service decides about its pods, made once from its spec and kept until the spec changes.

A newer operator has newer rules, another default image and another way to write a pod. None of them may restart
anybody's pods, so a service keeps the rendering it has for as long as the part of its spec that it was made from stays
as it is. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec

from graphpod_operator.api import Spec
from graphpod_operator.render.controllerrevision import ENGINE, MADE_FROM, PLAN, UNDEGRADED, WORKLOAD
from graphpod_operator.render.subject import TEMPLATE_ANNOTATION, Body
from graphpod_policy import Decision, Outcome, Phase, PhasePlan, Plan, Policy, Stage, config_hash

ELSEWHERE: tuple[tuple[str, ...], ...] = (
    ("replicas",),
    ("suspend",),
    ("autoscaling",),
    ("updates",),
    ("slo",),
    ("monitoring",),
    ("networking",),
    ("rollout", "strategy"),
    ("rollout", "maxUnavailable"),
    ("graph", "retries"),
)
"""Fields of the spec that no pod is rendered from."""


FIRST_DEFAULTS: dict[tuple[str, ...], int] = {("engine", "maxModelLen"): 2048, ("engine", "maxBatch"): 8}
"""Fields that are Auto today and had these defaults, which the API server wrote into every service. A service that has
them keeps the fingerprint it had.
"""
AUTO = "Auto"


@dataclass(frozen=True)
class Rendering:
    """`engine` are the bytes of engine.json, `workload` is the Deployment's part that the pods come from, `policy` the
    plan behind both, `made_from` the fingerprint of the spec they were rendered from; `undegraded` is the revision that
    this one is a weaker form of, if it is one.
    """

    made_from: str
    engine: bytes
    workload: Body
    policy: Plan
    undegraded: str | None = None

    @cached_property
    def config_hash(self) -> str:
        """Hash of the engine's configuration."""
        return config_hash(self.engine)

    @cached_property
    def revision(self) -> str:
        """The name of this rendering. Words of the plan are not in it: they change nothing that runs."""
        return revision(self.made_from, self.engine.decode(), canonical(self.workload))

    @property
    def image(self) -> str:
        """The engine's image."""
        image: str = self.workload["template"]["spec"]["containers"][0]["image"]
        return image

    @property
    def template(self) -> str:
        """What tells its pods from those of other renderings; empty when they carry no such mark."""
        mark: str = self.workload["template"]["metadata"]["annotations"].get(TEMPLATE_ANNOTATION, "")
        return mark

    def data(self) -> dict[str, str]:
        """What is kept of it."""
        return {
            MADE_FROM: self.made_from,
            ENGINE: self.engine.decode(),
            WORKLOAD: canonical(self.workload),
            PLAN: canonical(_words(self.policy)),
            **({UNDEGRADED: self.undegraded} if self.undegraded is not None else {}),
        }

    @classmethod
    def read(cls, data: Mapping[str, str], today: Plan) -> Rendering:
        """What was kept as `data`. `today` is the plan of the same spec by the rules of today."""
        engine, workload = data[ENGINE].encode(), msgspec.json.decode(data[WORKLOAD])
        policy = _plan(msgspec.json.decode(engine)["graph"], data.get(PLAN, ""), today)
        return cls(data[MADE_FROM], engine, workload, policy, data.get(UNDEGRADED))


def revision(made_from: str, engine: str, workload: str) -> str:
    """The name of the rendering of these three: a fingerprint, engine.json, and the Deployment's part as `canonical`
    has it. It never changes: services that run are known by it.
    """
    return hashlib.sha256("\n".join((made_from, engine, workload)).encode()).hexdigest()[:10]


def made_from(spec: Spec, queue: str | None) -> str:
    """Fingerprint of what a rendering is made from: the spec as written, without what is at its default.

    So a field that a later version adds leaves it as it is. FIRST_DEFAULTS are the defaults that have changed.
    """
    written = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for (struct, name), default in FIRST_DEFAULTS.items():
        value = written.setdefault(struct, {}).setdefault(name, AUTO)
        if value == default:
            _remove(written, (struct, name))
    for path in ELSEWHERE:
        _remove(written, path)
    return hashlib.sha256(canonical({"spec": written, "queue": queue}).encode()).hexdigest()[:16]


def _remove(value: dict[str, Any], path: tuple[str, ...]) -> None:
    """Remove the field at `path`, and a struct that has no other."""
    head, *rest = path
    if rest and isinstance(inner := value.get(head), dict):
        _remove(inner, tuple(rest))
    if not rest or value.get(head) == {}:
        value.pop(head, None)


def _words(policy: Plan) -> dict[str, Any]:
    """What a plan says beyond the engine's configuration."""
    return {
        "resolverRevision": policy.resolver_revision,
        "startSeconds": policy.budget.start_seconds,
        "gates": policy.gates,
        "decisions": [decision.as_dict() for decision in policy.decisions],
    }


def _plan(graph: Mapping[str, Any], text: str, today: Plan) -> Plan:
    """The plan that was made then, as far as status tells of it; today's, if its words are none of today's. Where
    they are lost, the reasons of a plan that is not today's are lost with them.
    """
    try:
        phases = {phase: _phase(graph[phase.value]) for phase in Phase}
        words = msgspec.json.decode(text) if text else {}
        if not words:
            return today if phases == today.phases else replace(today, phases=phases, decisions=(), refused=None)
        return replace(
            today,
            phases=phases,
            decisions=tuple(map(_decision, words["decisions"])),
            gates=tuple(words["gates"]),
            budget=replace(today.budget, start_seconds=int(words["startSeconds"])),
            resolver_revision=words["resolverRevision"],
            refused=None,
        )
    except (KeyError, TypeError, ValueError):
        return today


def _phase(told: Mapping[str, Any]) -> PhasePlan:
    return PhasePlan(Policy(told["requested"]), Policy(told["planned"]), tuple(told["sizes"]))


def _decision(told: Mapping[str, str]) -> Decision:
    where = Phase(told["phase"]), Stage(told["stage"]), Outcome(told["outcome"])
    return Decision(told["rule"], *where, told["because"], told["hint"])


def canonical(value: Any) -> str:
    """Equal values as equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
