"""Who uses a claim: the folders that no download may remove, and the services whose pods mount it. Pure, over the
store.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from graphpod_operator.cache.controller_revision import ENGINE, WORKLOAD
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.store import Store
from graphpod_operator.intent.asked_downloads import downloads
from graphpod_operator.intent.model_uri import MOUNT
from graphpod_operator.kube.resources import Resource
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


def claim_users(store: Store, namespace: str, claim: str) -> tuple[str, ...]:
    """The services of which pods have a node and mount this claim, by name."""
    found = (service for service in store.services() if service.key.namespace == namespace)
    return tuple(sorted(service.key.name for service in found if _mounts(store, service, claim)))


def _mounts(store: Store, service: Service, claim: str) -> bool:
    pods = [pod for pod in store.pods(service.key) if pod.placed and pod.gone is None]
    return bool(pods) and any(claim in _claims(data[WORKLOAD]) for data in _memories(store, service))


def _running(store: Store, service: Service, claim: str) -> Iterator[str]:
    """The folders from which a service's pods run."""
    for data in _memories(store, service):
        if claim in _claims(data[WORKLOAD]):
            yield from _MOUNTED.findall(data[ENGINE])


def _memories(store: Store, service: Service) -> Iterator[Mapping[str, str]]:
    """What a service's pods, and what makes them, were made from."""
    key = service.key
    newest = {f"{key.name}-{workload.revision}" for workload in store.workloads(key)}
    hashes = {pod.config_hash for pod in store.pods(key)}
    for child in store.children(key, Resource.ControllerRevision):
        if child.kept is None or child.kept.trouble is not None:
            continue
        data = child.kept.data
        if child.name in newest or config_hash(data[ENGINE].encode()) in hashes:
            yield data


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
    except (msgspec.MsgspecError, RecursionError):
        return set()
    return {one.persistentVolumeClaim.claimName for one in volumes if one.persistentVolumeClaim is not None}
