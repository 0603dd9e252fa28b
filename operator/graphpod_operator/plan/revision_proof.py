"""What a live Deployment proves of the rendering it was made from, should the memory of it be lost. Pure.

Its annotation names the rendering, by a hash over three things: the fingerprint of the spec, the engine's
configuration, and the Deployment's part. The first follows from the spec, the second is in the ConfigMap that the pods
name, the third is what of the Deployment is ours. Where their hash is that name, nobody has changed any of them since,
and they are the rendering. What is lost are the words of the plan, which only status tells.
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

from graphpod_operator.api.names import GROUP, HASH_ANNOTATION, KIND
from graphpod_operator.api.spec import Spec
from graphpod_operator.cache.child import Child, Owner
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.stored_revision import ENGINE, MADE_FROM, PLAN, UNDEGRADED, WORKLOAD, StoredRevision
from graphpod_operator.kube.field_ownership import owned_fields
from graphpod_operator.kube.port import Raw
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan import capture_failures
from graphpod_operator.render.config_map import KEY
from graphpod_operator.render.deployment import UNPINNED
from graphpod_operator.render.pinned_revision import NO_WORDS, canonical, made_from, revision


def lost(running: Child, memories: Iterable[Child]) -> bool:
    """Whether there is no memory of the rendering that a Deployment says it was made from."""
    name = f"{running.name}-{running.revision}"
    known = (one.kept for one in memories if one.name == name)
    return bool(running.revision) and not any(kept is not None and kept.trouble is None for kept in known)


def configuration(deployment: Raw) -> str:
    """The hash of the configuration that the pods of a Deployment have."""
    annotations = deployment["spec"]["template"]["metadata"].get("annotations") or {}
    told: str = annotations.get(HASH_ANNOTATION, "")
    return told


def rebuilt(found: Service, running: Child, memories: Iterable[Child], deployment: Raw, config: Raw) -> Child | None:
    """The lost memory, as it would be the newest; None where what is there does not prove it, or where the spec has
    changed since.
    """
    try:
        mark = made_from(Spec.model_validate(found.spec), found.queue)
    except ValidationError:
        return None
    engine = (config.get("data") or {}).get(KEY, "")
    workload = canonical(
        {name: part for name, part in owned_fields(deployment).get("spec", {}).items() if name not in UNPINNED}
    )
    if revision(mark, engine, workload) != running.revision:
        return None
    numbers = [one.kept.number for one in memories if one.kept is not None]
    data = {MADE_FROM: mark, ENGINE: engine, WORKLOAD: workload, PLAN: NO_WORDS}
    if (undegraded := capture_failures.stronger(running.capture_failures, running.revision)) is not None:
        data[UNDEGRADED] = undegraded
    return Child(
        resource=Resource.ControllerRevision,
        namespace=found.key.namespace,
        name=f"{found.key.name}-{running.revision}",
        uid="",
        version=0,
        key=found.key,
        controller=Owner(GROUP, KIND, found.key.name, found.uid),
        deleting=False,
        owned="",
        applied="",
        rollout=None,
        kept=StoredRevision.of({"revision": max(numbers, default=0) + 1, "data": data}),
    )
