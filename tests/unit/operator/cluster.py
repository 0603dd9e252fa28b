"""An API server in memory, as far as the port shows one: versions, uids, our managed fields, scripted refusals."""

import copy
import itertools
from collections.abc import Callable, Collection, Mapping
from typing import Any

from graphpod_operator.api.names import STORED_PREFIX
from graphpod_operator.kube.cluster import Conflict, Listing, T
from graphpod_operator.kube.field_ownership import FIELD_MANAGER, STORED_MANAGER, desired_fields
from graphpod_operator.kube.resources import WORKLOADS, Resource

Manifest = dict[str, Any]
Address = tuple[Resource, str, str]


def fields_v1(value: Any) -> Manifest:
    """The managed-fields set of applied values; lists count as atomic."""
    if isinstance(value, Mapping):
        return {f"f:{key}": fields_v1(child) for key, child in value.items()}
    return {}


class FakeDiscovery:
    """Serves the optional kinds in `served`."""

    def __init__(self, *served: Resource) -> None:
        self.served = set(served)

    async def serves(self, kinds: Collection[Resource]) -> frozenset[Resource]:
        return frozenset(self.served.intersection(kinds))


class FakeCluster:
    """The seven-method port. `refuse` may raise instead of a write; `normalise` may change what is stored."""

    def __init__(self) -> None:
        self.objects: dict[Address, Manifest] = {}
        self.writes: list[tuple[str, str]] = []
        self.events: list[Manifest] = []
        self.refuse: Callable[[str, Resource], None] = lambda method, resource: None
        self.normalise: Callable[[Manifest], None] = lambda stored: None
        self._versions = itertools.count(100)

    def put(self, resource: Resource, manifest: Manifest) -> Manifest:
        """Somebody else's write."""
        metadata = manifest["metadata"]
        stored = copy.deepcopy(manifest)
        stored["metadata"] |= {"resourceVersion": str(next(self._versions))}
        stored["metadata"].setdefault("uid", f"uid-{stored['metadata']['resourceVersion']}")
        self.objects[resource, metadata["namespace"], metadata["name"]] = stored
        return stored

    async def get(self, resource: Resource, namespace: str, name: str) -> Manifest | None:
        return copy.deepcopy(self.objects.get((resource, namespace, name)))

    async def list(
        self, resource: Resource, namespace: str | None, selector: str, keep: Callable[[Mapping[str, Any]], T]
    ) -> Listing[T]:
        found = [
            manifest
            for (kind, place, _), manifest in self.objects.items()
            if kind is resource and namespace in (None, place)
        ]
        return Listing(tuple(map(keep, copy.deepcopy(found))), next(self._versions))

    async def apply(
        self, resource: Resource, body: Mapping[str, Any], *, force: bool, manager: str = FIELD_MANAGER
    ) -> Manifest:
        self.refuse("apply", resource)
        metadata = body["metadata"]
        self.writes.append((resource.kind, metadata["name"]))
        known = self.objects.get((resource, metadata["namespace"], metadata["name"]))
        if known is not None and not force and manager == FIELD_MANAGER:
            raise Conflict(409, "conflict with another manager")
        if metadata.get("uid") and (known is None or known["metadata"]["uid"] != metadata["uid"]):
            raise Conflict(409, "Precondition failed: UID")
        version = metadata.get("resourceVersion")
        if version and known is not None and known["metadata"]["resourceVersion"] != version:
            raise Conflict(409, "the object has been modified")
        if manager == STORED_MANAGER and known is not None:
            return self.annotate(known, metadata["annotations"])
        if manager != FIELD_MANAGER:
            return self.claim_replicas(known, body["spec"]["replicas"], manager)
        stored = copy.deepcopy(dict(body))
        stored["metadata"].pop("resourceVersion", None)
        if known is not None:
            stored["metadata"]["uid"] = known["metadata"]["uid"]
        entry = {"manager": "graphpod", "operation": "Apply", "fieldsV1": fields_v1(desired_fields(stored))}
        if "ownerReferences" in stored["metadata"]:
            entry["fieldsV1"]["f:metadata"]["f:ownerReferences"] = {}
        stored["metadata"]["managedFields"] = [entry]
        if resource in WORKLOADS:
            _replicas(known, stored)
        self.normalise(stored)
        return self.put(resource, stored)

    def annotate(self, known: Manifest, annotations: Mapping[str, str]) -> Manifest:
        """The annotations of a claim's folders, which have a field manager of their own."""
        stored = copy.deepcopy(known)
        others = {k: v for k, v in (stored["metadata"].get("annotations") or {}).items() if STORED_PREFIX not in k}
        stored["metadata"]["annotations"] = {**others, **annotations}
        return self.put(Resource.PersistentVolumeClaim, stored)

    def claim_replicas(self, known: Manifest | None, replicas: int, manager: str) -> Manifest:
        """Somebody else writes the replicas: who claimed another number claims none any more."""
        assert known is not None
        stored = copy.deepcopy(known)
        if stored["spec"].get("replicas", 1) != replicas:
            for entry in stored["metadata"]["managedFields"]:
                entry["fieldsV1"].get("f:spec", {}).pop("f:replicas", None)
        stored["spec"]["replicas"] = replicas
        claimed = {"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
        stored["metadata"]["managedFields"].append(claimed)
        return self.put(Resource[stored["kind"]], stored)

    async def apply_status(self, body: Mapping[str, Any]) -> Manifest:
        self.refuse("apply_status", Resource.InferenceService)
        metadata = body["metadata"]
        self.writes.append(("status", metadata["name"]))
        known = self.objects[Resource.InferenceService, metadata["namespace"], metadata["name"]]
        return self.put(Resource.InferenceService, {**known, "status": body["status"]})

    async def delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        self.refuse("delete", resource)
        self.writes.append((f"delete {resource.kind}", name))
        self.objects.pop((resource, namespace, name), None)

    async def create(self, resource: Resource, body: Mapping[str, Any]) -> bool:
        self.refuse("create", resource)
        metadata = body["metadata"]
        self.writes.append((f"create {resource.kind}", metadata["name"]))
        if (resource, metadata["namespace"], metadata["name"]) in self.objects:
            return False
        self.put(resource, dict(body))
        return True

    async def event(self, body: Mapping[str, Any]) -> None:
        self.refuse("event", Resource.InferenceService)
        self.events.append(dict(body))


def _replicas(known: Manifest | None, stored: Manifest) -> None:
    """Who applies no number leaves that of the others who claim one; without any, it is 1."""
    others = [] if known is None else known["metadata"]["managedFields"][1:]
    claimed = [entry for entry in others if "f:replicas" in entry["fieldsV1"].get("f:spec", {})]
    if "replicas" not in stored["spec"]:
        stored["spec"]["replicas"] = known["spec"]["replicas"] if known is not None and claimed else 1
    elif known is not None and known["spec"]["replicas"] != stored["spec"]["replicas"]:
        claimed = []
    stored["metadata"]["managedFields"] += copy.deepcopy(claimed)
