"""The planner: from a service to the children it wants. Pure, as `writes` is, which looks at what is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from pydantic import ValidationError

from graphpod_operator.api.lifecycle import ScalingProvider, Updates
from graphpod_operator.api.spec import Spec
from graphpod_operator.cache.controller_revision import MADE_FROM, UNDEGRADED
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.intent.engine_config import EngineFile, engine_config
from graphpod_operator.intent.over_limits import over_limits
from graphpod_operator.intent.resolver_input import container_bytes, features, graph_request, missing
from graphpod_operator.kube import bounds
from graphpod_operator.kube.absent_kinds import Absence, Absent, exists
from graphpod_operator.kube.resources import AUTOSCALERS, WORKLOADS, Resource
from graphpod_operator.plan import capture_failure_annotation, capture_fallback
from graphpod_operator.plan.capture_failure_annotation import CaptureFailures
from graphpod_operator.plan.desired_child import DesiredChild
from graphpod_operator.plan.desired_state import Desired, PendingUpdate, Withheld
from graphpod_operator.plan.downloads import Weights, weights
from graphpod_operator.plan.own_revisions import OwnRevision, kept_as, own_revisions, running_as
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.plan.refused import Refused
from graphpod_operator.render import scaling
from graphpod_operator.render.config_map import config_map
from graphpod_operator.render.controller_revision import controller_revision
from graphpod_operator.render.disruption_budget import FLOOR, disruption_budget
from graphpod_operator.render.http_route import gateway_namespaces, http_route
from graphpod_operator.render.network_policy import network_policy
from graphpod_operator.render.owner import Owner
from graphpod_operator.render.pinned_rendering import Rendering, canonical, made_from
from graphpod_operator.render.pod import group_key
from graphpod_operator.render.pod_monitor import pod_monitor
from graphpod_operator.render.service import service
from graphpod_operator.render.service_account import service_account
from graphpod_operator.render.source_hosts_map import source_hosts_map, streams
from graphpod_operator.render.workload.body import kind_of, workload, workload_body
from graphpod_operator.schema.validation_errors import field_path, mistakes
from graphpod_policy import Features, GraphRequest, NodeFacts, Phase, Plan, can_start, resolve

REMEMBERED = 512
"""Plans that are not made again: a service is looked at often, and many services ask for the same."""


def desire(given: PlanInput) -> Desired | Refused:
    """What a service wants, or why it cannot have it.

    A rendering that was kept for the present spec is wanted as it is. A fresh one takes its place when the spec asks
    for that always, or when its name stands in the annotation graphpod.dev/adopt. What the spec asks of the operator
    itself stands in no rendering, so a feature that is not built is refused even where a rendering is kept.
    """
    found, installed = given.found, given.installed
    if found.breach is not None:
        return Refused(Reason.SpecTooLarge, found.breach)
    try:
        spec = Spec.model_validate(found.spec)
    except ValidationError as error:
        first = mistakes(error)[0]
        field = field_path(("spec", *first.place))
        reason = Reason.PodTemplateInvalid if field.startswith("spec.podTemplate") else Reason.SpecInvalid
        return Refused(reason, f"{field}: {first.what}")
    if (above := over_limits(spec.resources)) is not None:
        return Refused(Reason.SpecInvalid, f"{above.what}; {above.step}")
    owner = Owner(found.key.name, found.key.namespace, found.uid, spec, found.queue, installed, given.grouped)
    mark = made_from(spec, found.queue)
    fresh, policy = _render(owner, mark)
    if (broken := installed.allowed.breach(spec, found.key.namespace)) is not None:
        return Refused(Reason.NotAllowed, broken)
    lacking = _without_keda(spec, given.absent, installed.prometheus) or _without_groups(spec, given.absent)
    if lacking is not None:
        return lacking
    if isinstance(asked := weights(owner, found.spec, given.weights), Refused):
        return asked
    kept = own_revisions(found, given.revisions)
    known = [one.data for one in kept if one.data is not None and one.data[MADE_FROM] == mark]
    same = [data for data in known if UNDEGRADED not in data]
    adopted = found.adopt is not None and isinstance(fresh, Rendering) and found.adopt == fresh.revision
    news: tuple[PendingUpdate, ...] = ()
    if not same or spec.updates is Updates.Auto or adopted:
        if isinstance(fresh, Refused):
            return fresh
        pinned = fresh
    else:
        pinned = Rendering.read(same[-1], policy)
        news = _news(owner, pinned, fresh)
    if asked is not None and asked.missing is not None and not _runs(given, pinned, kept):
        waiting = _waiting(owner, pinned, kept, given, replace(asked, waits=True))
        return _too_large(found, waiting.children) or replace(waiting, news=news)
    before = capture_failure_annotation.recall(given.capture_failures, pinned.revision, found.adopt)
    running = _weaker(owner, pinned, before, kept)
    after = before
    if not found.paused:
        after = capture_fallback.noted(before, running, spec, given.pods)
    if steps_down := after.steps != before.steps:
        running = capture_fallback.degraded(pinned, after, owner)
        after = replace(after, runs=running.revision)
    desired = _desired(owner, pinned, running, kept, given, after.text())
    return _too_large(found, desired.children) or replace(
        desired,
        weights=asked,
        policy=replace(running.policy, phases=pinned.policy.phases),
        news=news,
        capture_failures=after,
        steps_down=steps_down,
        can_weaken=capture_fallback.can_weaken(running.policy, spec),
    )


def _too_large(found: Service, children: Iterable[DesiredChild]) -> Refused | None:
    """Why one of the children cannot be made for its size."""
    for child in children:
        if (size := bounds.oversized(child.body)) is not None:
            made = f"the {child.resource.kind} made from the spec has {size // 1024} KiB"
            what = f"{bounds.largest(found.spec)}: {made}, more than {bounds.MADE_BYTES // 1024}"
            return Refused(Reason.SpecTooLarge, what)
    return None


def _runs(given: PlanInput, pinned: Rendering, kept: list[OwnRevision]) -> bool:
    """Whether what makes its pods was made from this rendering, or from a weaker form of it: its weights were there."""
    if given.running is None:
        return False
    made = running_as(given, kept)
    undegraded = made.get(UNDEGRADED) if made is not None else None
    return pinned.revision in (given.running.revision, undegraded)


def _waiting(owner: Owner, pinned: Rendering, kept: list[OwnRevision], given: PlanInput, asked: Weights) -> Desired:
    """What a service wants while the weights of its rendering are missing: what runs stays as it is. Before the first
    rollout that is nothing that makes pods, and nothing that scales them. Where the memory of what runs is lost,
    nothing is applied.
    """
    new = _desired(owner, pinned, pinned, kept, given, None)
    if given.running is None:
        first = tuple(child for child in new.children if child.resource not in (*WORKLOADS, *AUTOSCALERS))
        return replace(new, children=first, weights=asked)
    if (made := running_as(given, kept)) is None:
        return replace(new, children=(), weights=asked)
    earlier = Rendering.read(made, pinned.policy)
    children = _desired(owner, earlier, earlier, kept, given, given.capture_failures).children
    return replace(new, children=children, weights=asked)


def _weaker(owner: Owner, pinned: Rendering, memory: CaptureFailures, kept: list[OwnRevision]) -> Rendering:
    """The rendering that runs: the pinned one, or its weaker form, as it was made when it was decided."""
    if not memory.steps:
        return pinned
    name = owner.revision_name(memory.runs)
    made = kept_as(name, kept)
    return capture_fallback.degraded(pinned, memory, owner) if made is None else Rendering.read(made, pinned.policy)


def _render(owner: Owner, mark: str) -> tuple[Rendering | Refused, Plan]:
    """What this operator makes of a spec, whose fingerprint is `mark`, and its plan even where it refuses: a rendering
    that is kept is read by it.
    """
    spec = owner.spec
    policy = _resolved(features(spec), graph_request(spec))
    if lacking := missing(spec):
        return Refused(Reason.FeatureNotBuilt, "; ".join(row.message for row in lacking)), policy
    config = engine_config(owner.name, spec, policy)
    if obstacles := can_start(config, policy, node=NodeFacts(container_bytes=container_bytes(spec))):
        reason = Reason[obstacles[0].reason]
        alike = (one for one in obstacles if one.reason == reason.name)
        what = "; ".join(str(one) if reason.row.own_step else one.what for one in alike)
        return Refused(reason, what), policy
    file = EngineFile.of(config)
    body = workload(owner, policy, file.hash)
    return Rendering(mark, file.data, body, policy), policy


@lru_cache(REMEMBERED)
def _resolved(features: Features, request: GraphRequest) -> Plan:
    return resolve(features, request)


def _memories(owner: Owner, pinned: Rendering, running: Rendering, kept: list[OwnRevision]) -> Iterator[DesiredChild]:
    """The memory of what runs, with the highest number of all, and of what that is a weaker form of, to go back to."""
    numbers = {one.name: one.number for one in kept}
    name, undegraded = (owner.revision_name(rendering.revision) for rendering in (running, pinned))
    number = numbers.pop(name, 0)
    if undegraded != name:
        numbers.setdefault(undegraded, max(numbers.values(), default=0) + 1)
        yield _memory(owner, pinned, numbers[undegraded], kept)
    newest = max(numbers.values(), default=0)
    yield _memory(owner, running, number if number > newest else newest + 1, kept)


def _memory(owner: Owner, rendering: Rendering, number: int, kept: list[OwnRevision]) -> DesiredChild:
    name = owner.revision_name(rendering.revision)
    # a memory cannot be changed, and the words of its plan may be others than today's
    data = kept_as(name, kept) or rendering.data()
    return DesiredChild.of(Resource.ControllerRevision, controller_revision(owner, rendering.revision, data, number))


def _desired(
    owner: Owner,
    pinned: Rendering,
    rendering: Rendering,
    kept: list[OwnRevision],
    given: PlanInput,
    deaths: str | None,
) -> Desired:
    """The children around a rendering, which is the pinned one or a weaker form of it."""
    budget = (
        DesiredChild.of(Resource.PodDisruptionBudget, disruption_budget(owner, given.failed_start or given.asleep)),
    )
    file = EngineFile(rendering.engine, rendering.config_hash)
    policy, shut = _guarded(owner, given.absent)
    optional = tuple(_optional(owner))
    return Desired(
        policy=rendering.policy,
        config_hash=file.hash,
        template=rendering.template,
        revision=rendering.revision,
        workload=rendering.workload,
        replicas=scaling.replicas(owner.spec),
        fewest=scaling.fewest(owner.spec),
        scaled_by=scaling.decided_by(owner.spec),
        children=(
            DesiredChild.of(Resource.ServiceAccount, service_account(owner)),
            DesiredChild.of(Resource.ConfigMap, config_map(owner, file)),
            *((DesiredChild.of(Resource.ConfigMap, source_hosts_map(owner)),) if streams(rendering.workload) else ()),
            DesiredChild.of(Resource.Service, service(owner)),
            *_memories(owner, pinned, rendering, kept),
            *(budget if scaling.fewest(owner.spec) >= FLOOR else ()),
            *policy,
            DesiredChild.of(
                kind_of(rendering.workload), workload_body(owner, rendering.workload, rendering.revision, deaths)
            ),
            *_autoscaler(owner, kind_of(rendering.workload), given.asleep),
            *(child for child in optional if child.resource not in given.absent),
        ),
        withheld=tuple(
            Withheld(child.resource, given.absent[child.resource])
            for child in optional
            if child.resource in given.absent
        ),
        shut=shut,
        asleep=given.asleep,
        misses_key=group_key.secret_of(rendering.workload) in given.missing_secrets,
    )


def _guarded(owner: Owner, absent: Absent) -> tuple[tuple[DesiredChild, ...], tuple[str, ...]]:
    """The NetworkPolicy, where somebody says who may reach the pods, and the namespaces of Gateways it keeps out."""
    if (access := owner.installed.access) is None:
        return (), ()
    through = gateway_namespaces(owner) if exists(Resource.HTTPRoute, absent) else ()
    # whoever may write a service names any Gateway, but who reaches pods is the installer's to say
    opened = tuple(namespace for namespace in through if namespace in access.routes)
    policy = DesiredChild.of(Resource.NetworkPolicy, network_policy(owner, access, opened))
    # where the installer has said which pods ask from elsewhere, the proxies are taken to be among them
    return (policy,), () if access.http else tuple(namespace for namespace in through if namespace not in opened)


def _optional(owner: Owner) -> Iterator[DesiredChild]:
    """The children of optional kinds that the spec asks for, whether or not their kinds are there."""
    if owner.spec.monitoring.enabled:
        yield DesiredChild.of(Resource.PodMonitor, pod_monitor(owner))
    if (route := owner.spec.networking.route) is not None:
        yield DesiredChild.of(Resource.HTTPRoute, http_route(owner, route))


def _autoscaler(owner: Owner, kind: Resource, held: bool) -> Iterator[DesiredChild]:
    """What decides on the number of pods; nothing while the spec does."""
    asked = owner.spec.autoscaling
    if asked is None or owner.spec.suspend:
        return
    if asked.provider is ScalingProvider.KEDA:
        yield DesiredChild.of(Resource.ScaledObject, scaling.scaled_object(owner, asked, kind, held))
    else:
        body = scaling.horizontal_pod_autoscaler(owner, asked, kind, held)
        yield DesiredChild.of(Resource.HorizontalPodAutoscaler, body)


def _without_keda(spec: Spec, absent: Absent, prometheus: str | None) -> Refused | None:
    """Why KEDA cannot decide on the number of pods, if it is to."""
    if spec.suspend or spec.autoscaling is None or spec.autoscaling.provider is not ScalingProvider.KEDA:
        return None
    if (absence := absent.get(Resource.ScaledObject)) is not None:
        return _lacks(absence, Reason.KedaMissing, "spec.autoscaling.provider")
    if prometheus == "":
        return Refused(
            Reason.PrometheusUnknown, "spec.autoscaling.provider: the operator has no address of a Prometheus for KEDA"
        )
    return None


def _without_groups(spec: Spec, absent: Absent) -> Refused | None:
    """Why no group of pods can be one replica, if one is to."""
    if spec.parallelism.nodes == 1 or (absence := absent.get(Resource.LeaderWorkerSet)) is None:
        return None
    return _lacks(absence, Reason.LeaderWorkerSetMissing, f"spec.parallelism.nodes {spec.parallelism.nodes}")


def _lacks(absence: Absence, missing: Reason, field: str) -> Refused:
    """That a field needs a kind: `missing`, unless the kind is there and only fails to be listed."""
    listed = absence.reason is not Reason.KindNotListed
    return Refused(missing if listed else Reason.KindNotListed, f"{field}: {absence.what}")


def _news(owner: Owner, pinned: Rendering, fresh: Rendering | Refused) -> tuple[PendingUpdate, ...]:
    """What a fresh rendering would change: what the rules plan, and what the pods are made of."""
    if isinstance(fresh, Refused):
        return (PendingUpdate(Reason.RulesRefuse, f"this operator version rejects the spec: {fresh.what}"),)
    if (pinned.engine, pinned.workload) == (fresh.engine, fresh.workload):
        return ()
    news = []
    made = workload(owner, pinned.policy, pinned.config_hash)
    if made != fresh.workload:  # the plan alone is another
        plans = [
            f"{phase} {pinned.policy.phases[phase].planned} becomes {fresh.policy.phases[phase].planned}"
            for phase in Phase
            if pinned.policy.phases[phase].planned is not fresh.policy.phases[phase].planned
        ]
        configured = fresh.config_hash != pinned.config_hash
        start = f"the start budget becomes {fresh.policy.budget.start_seconds} s"
        what = ", ".join(plans) or ("the engine's configuration changes" if configured else start)
        news.append(PendingUpdate(Reason.NewPolicy, f"revision {fresh.revision}: {what}"))
    if canonical(made) != canonical(pinned.workload):
        image = (
            f"image {pinned.image} becomes {fresh.image}" if pinned.image != fresh.image else "the pods' form changes"
        )
        news.append(PendingUpdate(Reason.NewEngine, f"revision {fresh.revision}: {image}"))
    return tuple(news)
