"""The planner: from a service to the children it wants, and from those and the cluster to the writes it takes.

Both halves are pure. The executor, `reconcile`, only carries out what stands here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import ValidationError

from graphpod_operator import observe
from graphpod_operator.api import KIND, Spec
from graphpod_operator.api_model import first_mistake
from graphpod_operator.engineconfig import engine_file
from graphpod_operator.features import features, graph_request, missing
from graphpod_operator.ownership import desired_fields, fingerprint
from graphpod_operator.reasons import Reason
from graphpod_operator.render import podtemplate
from graphpod_operator.render.configmap import config_map
from graphpod_operator.render.deployment import deployment, replicas
from graphpod_operator.render.service import service
from graphpod_operator.render.serviceaccount import service_account
from graphpod_operator.render.subject import Body, Subject
from graphpod_operator.resource import Resource
from graphpod_policy import Plan, resolve


@dataclass(frozen=True, slots=True)
class Wanted:
    """One child as it should be; `owned` is the fingerprint its fields of ours must have."""

    resource: Resource
    namespace: str
    name: str
    body: Body
    owned: str

    @classmethod
    def of(cls, resource: Resource, body: Body) -> Wanted:
        """A child from the body to apply."""
        metadata = body["metadata"]
        return cls(resource, metadata["namespace"], metadata["name"], body, fingerprint(desired_fields(body)))

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Desired:
    """A service that can run: its graph plan, the hash of its engine's configuration, its children in order."""

    policy: Plan
    config_hash: str
    replicas: int
    children: tuple[Wanted, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A service that cannot run as written. Its children, if it has any, stay as they are."""

    reason: Reason
    what: str
    policy: Plan | None = None


def desire(found: observe.Service, default_image: str) -> Desired | Refused:
    """What a service wants, or why it cannot have it."""
    try:
        spec = Spec.model_validate(found.spec)
    except ValidationError as error:
        place, what = first_mistake(error)
        field = ".".join(["spec", *map(str, place)])
        reason = Reason.PodTemplateInvalid if field.startswith("spec.podTemplate") else Reason.SpecInvalid
        return Refused(reason, f"{field}: {what}")
    policy = resolve(features(spec), graph_request(spec))
    if lacking := missing(spec):
        return Refused(Reason.FeatureNotBuilt, "; ".join(row.message for row in lacking), policy)
    if policy.refused is not None:
        refused = policy.refused
        return Refused(
            Reason.PolicyRefused, f"spec.graph.{refused.phase}: rule {refused.rule}: {refused.because}", policy
        )
    subject = Subject(found.key.name, found.key.namespace, found.uid, spec, found.queue)
    file = engine_file(found.key.name, spec, policy)
    return Desired(
        policy=policy,
        config_hash=file.hash,
        replicas=replicas(spec),
        children=(
            Wanted.of(Resource.ServiceAccount, service_account(subject)),
            Wanted.of(Resource.ConfigMap, config_map(subject, file)),
            Wanted.of(Resource.Service, service(subject)),
            Wanted.of(Resource.Deployment, deployment(subject, policy, file.hash, default_image)),
        ),
    )


@dataclass(frozen=True, slots=True)
class Create:
    """A child that does not exist. It is applied without force, after a live look."""

    wanted: Wanted


@dataclass(frozen=True, slots=True)
class Repair:
    """A child of ours that differs from the plan. It is applied with force, to this uid only."""

    wanted: Wanted
    uid: str


Write = Create | Repair


def not_applied(message: str) -> Refused:
    """What it means that the API server refused one of the children, with the server's words."""
    reason = Reason.PodTemplateInvalid if podtemplate.is_blamed(message) else Reason.ApplyRefused
    return Refused(reason, message)


Look = Callable[[Wanted], observe.Child | None]


def writes(found: observe.Service, desired: Desired, look: Look) -> tuple[Write, ...] | Refused:
    """The writes that make the children as desired; none when they are. `look` finds a child by name.

    One child that belongs to somebody else stops all of them: a half-applied service helps nobody.
    """
    needed: list[Write] = []
    for wanted in desired.children:
        live = look(wanted)
        if live is None:
            needed.append(Create(wanted))
        elif (stranger := foreign(found, wanted, live)) is not None:
            return stranger
        elif live.owned != wanted.owned:
            needed.append(Repair(wanted, live.uid))
    return tuple(needed)


def foreign(found: observe.Service, wanted: Wanted, live: observe.Child) -> Refused | None:
    """Why a live object may not be written: it is not controlled by this very service, or it is going away."""
    if live.controller is not None and live.controller[:2] == (KIND, found.key.name):
        if live.controller[2] != found.uid or live.deleting:
            return Refused(Reason.PreviousDeleting, f"{wanted} is still there")
        return None
    owner = f"controlled by {live.controller[0]} {live.controller[1]}" if live.controller else "not made by graphpod"
    return Refused(Reason.NameCollision, f"{wanted} exists and is {owner}; it was left untouched")
