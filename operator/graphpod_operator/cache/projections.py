"""The projection of any watched object: only what the operator decides on. Bodies are never kept."""

from __future__ import annotations

from graphpod_operator.cache.child import Child
from graphpod_operator.cache.job import Job
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.service import Service
from graphpod_operator.kube.cluster import Raw
from graphpod_operator.kube.resources import Resource

Projection = Service | Child | Job | Pod


def project(resource: Resource, raw: Raw) -> Projection:
    """The projection of any watched object."""
    if resource is Resource.InferenceService:
        return Service.of(raw)
    if resource is Resource.Pod:
        return Pod.of(raw)
    if resource is Resource.Job:
        return Job.of(raw)
    return Child.of(resource, raw)


def is_ours(found: Service, live: Child) -> bool:
    """Whether a live object is controlled by this very service, and stays."""
    owner = live.controller
    return owner is not None and owner.is_service(found.key.name) and owner.uid == found.uid and not live.deleting
