"""What must be true whatever was done to the operator: pure judgements over what was seen.

1. `state`: in the end the objects are those of a run that nothing disturbed; `differences` says where they are not.
2. `orphans`: nothing is left that belongs to nobody, and nothing is there twice.
3. `excess`: the audit log shows a bounded number of writes, and no object written in a hot loop.
4. `lies`: every status that said Ready was backed by proof of every pod it spoke of (contract 13).
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from tests.audit import Trail
from tests.places import LABEL, Manifest
from tests.sim.chaos.witness import Reading
from tests.sim.history import History, Version

HASH = "graphpod.dev/config-hash"
AGREES_SECONDS = 10.0
"""Within which status agrees with a change (contract 13)."""
CLOCK_SECONDS = 1.0
"""Times in a pod's status have whole seconds."""
HOT = (15, 5.0)
"""An object written more often than this within so many seconds is in a hot loop."""

State = dict[str, Any]
"""Objects by `Kind name`, without what is another in every run."""

OF_A_RUN = frozenset({
    "uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "lastTransitionTime", "revision",
    "captureSeconds", "clusterIP", "clusterIPs", "healthCheckNodePort", "namespace",
    "graphpod.dev/applied",  # a fingerprint of the rest, the revision's number among it
})  # fmt: skip
POD_NAME = re.compile(r"\b([a-z0-9-]+)-([0-9a-f]{8,10})-[a-z0-9]{5}\b")
OF_OTHERS = ("stub.graphpod.dev/", "deployment.kubernetes.io/")
"""Annotations of the stub engines, and of the rollouts there were."""


def state(items: Sequence[Manifest]) -> State:
    """The objects of services, as they would be in any run that ended in the same place."""
    found: State = {}
    for item in items:
        kind, metadata = item["kind"], item["metadata"]
        if not ours(item) or "deletionTimestamp" in metadata:
            continue
        if kind == "ReplicaSet" and not item["spec"]["replicas"]:
            continue  # kept for a rollback; how many there are depends on how far each rollout got
        if kind == "Pod":
            pod = f"Pod of {metadata['ownerReferences'][0]['name']}"
            found[pod] = [*found.get(pod, ()), _pod(item)]
        else:
            found[f"{kind} {metadata['name']}"] = _plain(_said(item), metadata["namespace"])
    return found


def ours(item: Manifest) -> bool:
    """Whether it is an InferenceService or carries our label."""
    return item["kind"] == "InferenceService" or LABEL in (item["metadata"].get("labels") or {})


def _said(item: Manifest) -> Manifest:
    """Of children what was asked for, of an InferenceService also its status."""
    metadata = item["metadata"]
    owners = [f"{owner['kind']} {owner['name']}" for owner in metadata.get("ownerReferences", ())]
    kept = {name: metadata.get(name) for name in ("labels", "annotations")}
    rest = {key: value for key, value in item.items() if key not in ("metadata", "status", "kind", "apiVersion")}
    told = {"status": item.get("status")} if item["kind"] == "InferenceService" else {}
    return {**rest, **told, "metadata": kept, "owners": owners}


def _pod(item: Manifest) -> Manifest:
    status = item.get("status", {})
    ready = [row["status"] for row in status.get("conditions", ()) if row["type"] == "Ready"]
    config = item["metadata"]["annotations"].get(HASH)
    return {"phase": status.get("phase"), "ready": ready, "config": config}


def _plain(value: Any, namespace: str) -> Any:
    if isinstance(value, Mapping):
        kept = {key: entry for key, entry in value.items() if key not in OF_A_RUN and not key.startswith(OF_OTHERS)}
        return {key: _plain(entry, namespace) for key, entry in sorted(kept.items())}
    if isinstance(value, list):
        return [_plain(entry, namespace) for entry in value]
    if isinstance(value, str):
        return POD_NAME.sub(r"\1-POD", value.replace(namespace, "NAMESPACE"))
    return value


def differences(wanted: Any, found: Any, where: str = "") -> list[str]:
    """Where two states differ, one line each; none when they agree."""
    if wanted == found:
        return []
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        keys = sorted({*wanted, *found})
        return [line for key in keys for line in differences(wanted.get(key), found.get(key), f"{where}.{key}")]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = enumerate(zip(wanted, found, strict=True))
        return [line for at, (one, other) in pairs for line in differences(one, other, f"{where}[{at}]")]
    return [f"{where.lstrip('.')}: {_short(found)}, undisturbed: {_short(wanted)}"]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:200] + " …"


def orphans(items: Sequence[Manifest]) -> list[str]:
    """Objects of ours without an owner that is there, and kinds of which there is one too many."""
    uids = {item["metadata"]["uid"] for item in items}
    lost = [
        f"{item['kind']} {item['metadata']['name']} belongs to nobody"
        for item in items
        if ours(item)
        and item["kind"] != "InferenceService"
        and "deletionTimestamp" not in item["metadata"]
        and not {owner["uid"] for owner in item["metadata"].get("ownerReferences", ())} & uids
    ]
    single = ("Deployment", "Service", "ServiceAccount", "PodDisruptionBudget")
    counts = Counter((item["kind"], (item["metadata"].get("labels") or {}).get(LABEL)) for item in items if ours(item))
    twice = [f"{kind} of {name}: {n}" for (kind, name), n in counts.items() if kind in single and n > 1]
    return lost + twice


def excess(writes: Trail, bound: int) -> list[str]:
    """How the operator wrote more than it may. `writes` are its own, refused ones too."""
    too_many = [f"{len(writes)} writes where {bound} may be:\n{writes.told()}"] if len(writes) > bound else []
    # the create of an Event has no name in the log: those of all services count as one object
    hot = {thing: n for thing, n in writes.hot(*HOT).items() if thing.resource != "events"}
    return too_many + [f"{thing} was written {n} times within {HOT[1]:g} s" for thing, n in hot.items()]


def lies(services: History, pods: History, heard: Sequence[Reading]) -> list[str]:
    """The statuses that said Ready when not every pod they spoke of had proved its graphs."""
    return [
        f"{version.name} at {version.number} said Ready: {why}"
        for version in _claims(services.versions)
        for why in _unbacked(version, pods.versions, heard)
    ]


def _claims(services: Sequence[Version]) -> Iterator[Version]:
    """The versions by which a status began to say Ready of the spec it stands beside, or said it anew."""
    before: dict[str, Any] = {}
    for version in services:
        status = version.body.get("status") or {}
        if status == before.get(version.name) or version.deleted:
            continue
        before[version.name] = status
        ready = next((row for row in status.get("conditions", ()) if row["type"] == "Ready"), None)
        generation = version.body["metadata"]["generation"]
        if ready and ready["status"] == "True" and ready["observedGeneration"] == generation:
            yield version


def _unbacked(claim: Version, pods: Sequence[Version], heard: Sequence[Reading]) -> list[str]:
    spec, planned = claim.body["spec"], claim.body["status"]["graph"]["configHash"]
    wanted = spec.get("replicas", 1)
    then = list(_alive(claim, pods))
    proved = [pod for pod in then if _proved(pod, planned, claim.at, heard)]
    found = [f"{len(proved)} of {wanted} pods had proved {planned}"] if len(proved) < wanted else []
    unproved = (pod for pod in then if pod not in proved and "deletionTimestamp" not in pod["metadata"])
    return found + [
        f"{pod['metadata']['name']} served without proof" for pod in unproved if _serves_since(pod) < claim.at
    ]


def _alive(claim: Version, pods: Sequence[Version]) -> Iterator[Manifest]:
    """The pods of the service that were there when the claim was made, or until 10 s before."""
    latest: dict[str, Version] = {}
    for pod in pods:
        labels = pod.body["metadata"].get("labels") or {}
        if labels.get(LABEL) != claim.name or pod.number > claim.number:
            continue
        if pod.deleted and claim.at - pod.at > AGREES_SECONDS:
            latest.pop(pod.name, None)
        elif not pod.deleted:
            latest[pod.name] = pod
    return (version.body for version in latest.values())


def _proved(pod: Manifest, planned: str, by: float, heard: Sequence[Reading]) -> bool:
    """Whether the present run of the pod's engine said, before then, that it is through with what was planned."""
    running = [row["state"].get("running") for row in pod.get("status", {}).get("containerStatuses", ())]
    began = next((datetime.fromisoformat(one["startedAt"]).timestamp() for one in running if one), by)
    return pod["metadata"]["annotations"].get(HASH) == planned and any(
        one.terminal
        and (one.pod_uid, one.config_hash, one.state) == (pod["metadata"]["uid"], planned, "Ready")
        and began - CLOCK_SECONDS <= one.at <= by
        for one in heard
    )


def _serves_since(pod: Manifest) -> float:
    """Unix time from which status has to agree that this pod serves; never, for one that does not."""
    rows = pod.get("status", {}).get("conditions", ())
    ready = (row for row in rows if (row["type"], row["status"]) == ("Ready", "True"))
    since = next((datetime.fromisoformat(row["lastTransitionTime"]).timestamp() for row in ready), float("inf"))
    return since + AGREES_SECONDS
