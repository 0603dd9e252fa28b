"""The object that makes the pods of a service: a Deployment, or, where a replica runs on several nodes, a
LeaderWorkerSet. What it is made around, once, is *pinned*: of both kinds `template` is that of the pods that answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphpod_operator.api.names import CAPTURE_FAILURES_ANNOTATION, REVISION_ANNOTATION
from graphpod_operator.kube.resources import Resource
from graphpod_operator.render import scaling
from graphpod_operator.render.owner import Body, Owner
from graphpod_operator.render.workload import deployment, leader_worker_set
from graphpod_policy import Plan


def kind_of(pinned: Mapping[str, Any]) -> Resource:
    """The kind that a rendering is for."""
    return Resource.LeaderWorkerSet if "worker" in pinned else Resource.Deployment


def nodes_of(pinned: Mapping[str, Any]) -> int:
    """Pods of one replica of a rendering."""
    size: int = pinned.get("size", 1)
    return size


def workload_body(owner: Owner, pinned: Body, revision: str, deaths: str | None = None) -> Body:
    """The object around a rendering, under the name of that. `deaths` records starts that failed in a capture: it is
    outside the template, so that it restarts no pod.
    """
    grouped = kind_of(pinned) is Resource.LeaderWorkerSet
    body = leader_worker_set.leader_worker_set(owner, pinned) if grouped else deployment.deployment(owner, pinned)
    if (count := scaling.replicas(owner.spec)) is not None:
        body["spec"]["replicas"] = count
    body["metadata"]["annotations"] = {REVISION_ANNOTATION: revision}
    if deaths is not None:
        body["metadata"]["annotations"][CAPTURE_FAILURES_ANNOTATION] = deaths
    return body


def workload(owner: Owner, plan: Plan, config_hash: str) -> Body:
    """What the object's pods are made from: it does not change while they are to stay."""
    if owner.spec.parallelism.nodes > 1:
        return leader_worker_set.rendered(owner, plan, config_hash)
    return deployment.rendered(owner, plan, config_hash)


def reconfigured(pinned: Body, owner: Owner, plan: Plan, config_hash: str) -> Body:
    """What `workload` made once, for another configuration of the same engine."""
    if kind_of(pinned) is Resource.LeaderWorkerSet:
        return leader_worker_set.reconfigured(pinned, owner, plan, config_hash)
    return deployment.reconfigured(pinned, owner, plan, config_hash)


def pinned_of(kind: Resource, spec: Mapping[str, Any]) -> Body:
    """What `workload` made, from those fields of a live object's spec that are ours."""
    if kind is Resource.LeaderWorkerSet:
        return leader_worker_set.pinned_of(spec)
    return {name: part for name, part in spec.items() if name not in deployment.UNPINNED}
