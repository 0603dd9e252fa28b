"""Rebuild missing ControllerRevisions from the live Deployment and report corrupt ones.

The annotation of a live Deployment names the rendering it was made from, by a hash over three things: the fingerprint
of the spec, the engine's configuration, and the Deployment's part. The first follows from the spec, the second is in
the ConfigMap that the pods name, the third is what of the Deployment is ours. Where their hash is that name, no writer
has changed any of them since, and they are the rendering. What is lost are the words of the plan, which only status
has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from pydantic import ValidationError

from graphpod_operator.api.names import GROUP, HASH_ANNOTATION, KIND, config_name
from graphpod_operator.api.spec import Spec
from graphpod_operator.cache.child import Child, ControllerRef
from graphpod_operator.cache.controller_revision import ENGINE, MADE_FROM, PLAN, UNDEGRADED, WORKLOAD, StoredRevision
from graphpod_operator.cache.projections import is_ours
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.service_memory import RecoverySought, ServiceMemory
from graphpod_operator.kube.cluster import Cluster, Raw
from graphpod_operator.kube.field_ownership import owned_fields
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan import capture_failure_annotation
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.plan.refused import Refused
from graphpod_operator.render.config_map import KEY
from graphpod_operator.render.pinned_rendering import NO_WORDS, canonical, made_from, revision
from graphpod_operator.render.workload.body import pinned_of

log = logging.getLogger(__name__)


def unreadable(found: Service, revisions: Iterable[Child], memory: ServiceMemory) -> list[str]:
    """Which of a service's ControllerRevisions are corrupt, and why, in words; each is reported once."""
    said = []
    for one in revisions:
        trouble = one.kept.trouble if one.kept is not None else None
        if trouble is None or one.uid in memory.unreadable or not is_ours(found, one):
            continue
        memory.unreadable.add(one.uid)
        child = f"ControllerRevision {one.name}"
        log.warning("a memory is none", extra={"child": child, "why": trouble})
        said.append(f"{child}: {trouble}")
    return said


async def lost(given: PlanInput, outcome: Desired | Refused, memory: ServiceMemory, cluster: Cluster) -> Child | None:
    """The ControllerRevision of what runs, made again, if it is gone and would not come back by itself. Raises the
    port's errors.
    """
    found, running = given.found, given.running
    ours = [child for child in given.revisions if is_ours(found, child)]
    if running is None or not is_lost(running, ours, found.key.name):
        memory.sought = None
        return None
    if isinstance(outcome, Desired) and outcome.revision == running.revision:
        return None  # this operator makes the same
    by = replace(found, version=0, status={}), running.revision, running.owned
    if memory.sought is not None and memory.sought.by == by:
        return memory.sought.rebuilt
    live = await cluster.get(running.resource, running.namespace, running.name)
    if live is None or not is_lost(running := Child.of(running.resource, live), ours, found.key.name):
        return None
    name = config_name(found.key.name, configuration(live))
    config = await cluster.get(Resource.ConfigMap, running.namespace, name)
    rebuilt = rebuild(found, running, given.revisions, live, config) if config is not None else None
    proved = "made again from what runs" if rebuilt is not None else "what runs does not prove it"
    log.warning("a memory is gone", extra={"revision": running.revision, "why": proved})
    memory.sought = RecoverySought(by, rebuilt)
    return rebuilt


def is_lost(running: Child, memories: Iterable[Child], service: str) -> bool:
    """Whether there is no memory of the rendering that what makes the pods of a service says it was made from."""
    name = f"{service}-{running.revision}"
    known = (one.kept for one in memories if one.name == name)
    return bool(running.revision) and not any(kept is not None and kept.trouble is None for kept in known)


def configuration(workload: Raw) -> str:
    """The hash of the configuration that the pods of a Deployment or LeaderWorkerSet have."""
    spec = workload["spec"]
    template = spec["template"] if "template" in spec else spec["leaderWorkerTemplate"]["leaderTemplate"]
    annotations = template["metadata"].get("annotations") or {}
    hashed: str = annotations.get(HASH_ANNOTATION, "")
    return hashed


def rebuild(found: Service, running: Child, memories: Iterable[Child], live: Raw, config: Raw) -> Child | None:
    """The lost memory, as it would be the newest; None where what is there does not prove it, or where the spec has
    changed since.
    """
    try:
        mark = made_from(Spec.model_validate(found.spec), found.queue)
    except ValidationError:
        return None
    engine = (config.get("data") or {}).get(KEY, "")
    workload = canonical(pinned_of(running.resource, owned_fields(live).get("spec", {})))
    if revision(mark, engine, workload) != running.revision:
        return None
    numbers = [one.kept.number for one in memories if one.kept is not None]
    data = {MADE_FROM: mark, ENGINE: engine, WORKLOAD: workload, PLAN: NO_WORDS}
    if (undegraded := capture_failure_annotation.stronger(running.capture_failures, running.revision)) is not None:
        data[UNDEGRADED] = undegraded
    return Child(
        resource=Resource.ControllerRevision,
        namespace=found.key.namespace,
        name=f"{found.key.name}-{running.revision}",
        uid="",
        version=0,
        key=found.key,
        controller=ControllerRef(GROUP, KIND, found.key.name, found.uid),
        deleting=False,
        owned="",
        applied="",
        rollout=None,
        kept=StoredRevision.of({"revision": max(numbers, default=0) + 1, "data": data}),
    )
