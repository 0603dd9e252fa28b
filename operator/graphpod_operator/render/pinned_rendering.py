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
from typing import Annotated, Any

import msgspec

from graphpod_operator.api.names import TEMPLATE_ANNOTATION
from graphpod_operator.api.spec import Spec
from graphpod_operator.cache.controller_revision import ENGINE, MADE_FROM, PLAN, UNDEGRADED, WORKLOAD
from graphpod_operator.render.owner import Body
from graphpod_policy import Decision, Phase, PhasePlan, Plan, Policy, config_hash
from graphpod_policy.resolution.resolve import candidates

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
    ("model", "secretRef"),
    ("model", "cache", "size"),
    ("model", "cache", "storageClassName"),
    ("model", "cache", "accessMode"),
    ("model", "cache", "retain"),
)
"""Fields of the spec that no pod is rendered from."""


FIRST_DEFAULTS: dict[tuple[str, ...], int] = {("engine", "maxModelLen"): 2048, ("engine", "maxBatch"): 8}
"""Fields that are Auto today and had these defaults, which the API server wrote into every service. A service that has
them keeps the fingerprint it had.
"""
AUTO = "Auto"
NO_WORDS = "{}"
"""What is kept of a plan whose words are lost."""
_Word = Annotated[str, msgspec.Meta(max_length=64)]


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
        """What distinguishes its pods from those of other renderings; empty when they carry no such mark."""
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


class _Words(msgspec.Struct):
    """What a plan says beyond the engine's configuration."""

    resolverRevision: _Word
    startSeconds: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
    gates: Annotated[tuple[_Word, ...], msgspec.Meta(max_length=32)]
    decisions: tuple[Decision, ...]


def _words(policy: Plan) -> dict[str, Any]:
    """The same, to be kept."""
    return {
        "resolverRevision": policy.resolver_revision,
        "startSeconds": policy.budget.start_seconds,
        "gates": policy.gates,
        "decisions": [decision.as_dict() for decision in policy.decisions],
    }


def _plan(graph: Mapping[str, Any], text: str, today: Plan) -> Plan:
    """The plan of that time, as far as status reports it; today's, if its words are unknown today. Where
    they are lost, the reasons of a plan that is not today's are lost with them.
    """
    try:
        phases = {phase: _phase(graph[phase.value], phase) for phase in Phase}
        if text in ("", NO_WORDS):
            return today if phases == today.phases else replace(today, phases=phases, decisions=(), refused=None)
        words = msgspec.json.decode(text, type=_Words)
    except (KeyError, ValueError, RecursionError):
        return today
    return replace(
        today,
        phases=phases,
        decisions=words.decisions,
        gates=words.gates,
        budget=replace(today.budget, start_seconds=words.startSeconds),
        resolver_revision=words.resolverRevision,
        refused=None,
    )


def _phase(row: Any, phase: Phase) -> PhasePlan:
    """Raises ValueError where it is no plan that this phase can have."""
    plan = msgspec.convert(row, PhasePlan)
    if plan.planned not in candidates(phase, Policy.Full):
        raise ValueError(f"{phase} cannot be planned {plan.planned}")
    return plan


def canonical(value: Any) -> str:
    """Equal values as equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
