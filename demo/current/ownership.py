"""What the demo made in a reader's cluster, how one sees that, and taking away exactly that.

Both namespaces are made by the demo and carry its mark; preflight refuses a cluster that has graphpod from elsewhere.
So behind a marked system namespace the release, the CRD and the ClusterRole are the demo's.
"""

from demo.chart import NAMESPACE as SYSTEM
from demo.chart import OPERATOR, RELEASE
from demo.ground import Ground, Kubectl, Say
from demo.objects import Manifest, listed, read, wait
from demo.service import CLAIM, NAME, NAMESPACE
from testbed.errors import TestbedError

CRD = "inferenceservices.graphpod.dev"
MARK = "graphpod.dev/made-by"
DEMO = "demo"
GONE_LIMIT = 120.0  # s; a pod's grace period is the longest part
EVERYWHERE = frozenset({"ConfigMap/kube-root-ca.crt", "ServiceAccount/default"})
BY_ITSELF = frozenset({"events", "events.events.k8s.io", "endpoints"})  # these follow others, without an owner


def ours(namespace: Manifest) -> bool:
    return bool((namespace["metadata"].get("labels") or {}).get(MARK) == DEMO)


def claim_namespace(cluster: Kubectl, name: str) -> None:
    """Make a namespace of the demo's own, with its mark. One that is there without the mark is not touched."""
    found = read(cluster, "namespace", name)
    if found is None:
        manifest = f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n  labels: {{{MARK}: {DEMO}}}\n"
        cluster.kubectl("create", "-f", "-", input=manifest)
    elif not ours(found):
        raise TestbedError(f"namespace {name} appeared meanwhile and is not the demo's: look at it, then run again")


def remove(ground: Ground, say: Say) -> str:
    """Take the demo away; returns what was left and why, or that nothing was. What others made stays."""
    mine = [name for name in (NAMESPACE, SYSTEM) if (found := read(ground, "namespace", name)) and ours(found)]
    if not mine:
        return "nothing of the demo is in this cluster"
    kept: list[str] = []
    if NAMESPACE in mine:
        _remove_service(ground, say)
        kept += _remove_namespace(ground, NAMESPACE, say)
    if SYSTEM in mine:
        if needing := _services(ground):
            kept.append(f"the operator and its CRD stay, because these services need them: {', '.join(needing)}")
            return "; ".join(kept)
        say("the operator")
        ground.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait", "--ignore-not-found")
        # The operator's own, made by it and left behind, as every lock of an elected leader is.
        ground.kubectl("delete", "lease", OPERATOR, "-n", SYSTEM, "--ignore-not-found")
        _remove_crd(ground, say)
        kept += _remove_namespace(ground, SYSTEM, say)
    return "; ".join(kept) or "nothing of it is left"


def _remove_service(ground: Ground, say: Say) -> None:
    say(f"{NAMESPACE}/{NAME}")
    if read(ground, "crd", CRD):
        ground.kubectl("delete", f"{CRD}/{NAME}", "-n", NAMESPACE, "--ignore-not-found", timeout=GONE_LIMIT)
    for kind in ("job", "pvc"):
        ground.kubectl("delete", kind, CLAIM, "-n", NAMESPACE, "--ignore-not-found", timeout=GONE_LIMIT)


def _services(cluster: Kubectl) -> list[str]:
    if read(cluster, "crd", CRD) is None:
        return []
    return [f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in listed(cluster, CRD, "-A")]


def _remove_crd(cluster: Kubectl, say: Say) -> None:
    """The chart leaves it behind; it is the demo's while it says that this release brought it."""
    found = read(cluster, "crd", CRD)
    notes = (found or {}).get("metadata", {}).get("annotations") or {}
    if (notes.get("meta.helm.sh/release-name"), notes.get("meta.helm.sh/release-namespace")) == (RELEASE, SYSTEM):
        say("its CRD")
        cluster.kubectl("delete", "crd", CRD, timeout=GONE_LIMIT)


def _remove_namespace(cluster: Kubectl, name: str, say: Say) -> list[str]:
    """Delete a namespace once nothing is left in it. What is not the demo's keeps it, and is returned in words."""
    found: list[Manifest] = []

    def settled() -> bool:
        found[:] = contents(cluster, name)
        return not found or bool(others(found))

    say(f"namespace {name}")
    wait(f"namespace {name} empty", settled, GONE_LIMIT, lambda: "it still holds " + ", ".join(map(_title, found)))
    if foreign := others(found):
        return [f"namespace {name} stays, it holds what the demo did not make: {', '.join(foreign)}"]
    cluster.kubectl("delete", "namespace", name, timeout=GONE_LIMIT)
    return []


def contents(cluster: Kubectl, namespace: str) -> list[Manifest]:
    """Every object of a namespace, of whatever kind, but what Kubernetes itself puts into each."""
    kinds = cluster.kubectl("api-resources", "--namespaced=true", "--verbs=list,delete", "-o", "name").split()
    asked = ",".join(kind for kind in kinds if kind not in BY_ITSELF)
    return [one for one in listed(cluster, asked, "-n", namespace) if _title(one) not in EVERYWHERE]


def others(found: list[Manifest]) -> list[str]:
    """Objects that will not go by themselves: nothing owns them, and they were not deleted."""
    meta = [(_title(one), one["metadata"]) for one in found]
    return [title for title, data in meta if not data.get("ownerReferences") and "deletionTimestamp" not in data]


def _title(found: Manifest) -> str:
    return f"{found['kind']}/{found['metadata']['name']}"
