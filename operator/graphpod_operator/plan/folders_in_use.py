"""The folders of a claim that services use: what no download may remove. Pure, over the store."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from graphpod_operator.cache.controller_revision import ENGINE, WORKLOAD
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.store import Store
from graphpod_operator.kube.resources import Resource
from graphpod_operator.resolve.download import downloads
from graphpod_operator.resolve.model_uri import MOUNT
from graphpod_policy import config_hash

_MOUNTED = re.compile(rf'"{MOUNT}/([^"/]+)')


def folders_in_use(store: Store, namespace: str, claim: str) -> frozenset[str]:
    """What the specs of a namespace ask for on this claim, and what its pods and Deployments run from it: an edited
    service runs on its earlier weights until the new ones are there.
    """
    found: set[str] = set()
    for service in store.services():
        if service.key.namespace == namespace:
            asked = downloads(service.key.name, service.spec)
            found.update(one.folder for one in asked if one.claim == claim)
            found.update(_running(store, service, claim))
    return frozenset(found)


def _running(store: Store, service: Service, claim: str) -> Iterator[str]:
    """The folders from which a service's pods run, by the memory of what they were made from."""
    key = service.key
    deployment = store.child(Resource.Deployment, key.namespace, key.name)
    newest = f"{key.name}-{deployment.revision}" if deployment is not None else ""
    hashes = {pod.config_hash for pod in store.pods(key)}
    for child in store.children(key, Resource.ControllerRevision):
        if child.kept is None or child.kept.trouble is not None:
            continue
        data = child.kept.data
        if child.name != newest and config_hash(data[ENGINE].encode()) not in hashes:
            continue
        if claim in _claims(data[WORKLOAD]):
            yield from _MOUNTED.findall(data[ENGINE])


class _Claim(msgspec.Struct):
    claimName: str = ""


class _Volume(msgspec.Struct):
    persistentVolumeClaim: _Claim | None = None


class _Pod(msgspec.Struct):
    volumes: list[_Volume]


class _Template(msgspec.Struct):
    spec: _Pod


class _Workload(msgspec.Struct):
    template: _Template


def _claims(workload: str) -> set[str]:
    """The claims that the pods of a workload mount; none of one that cannot be read."""
    try:
        volumes = msgspec.json.decode(workload, type=_Workload).template.spec.volumes
    except msgspec.MsgspecError:
        return set()
    return {one.persistentVolumeClaim.claimName for one in volumes if one.persistentVolumeClaim is not None}
