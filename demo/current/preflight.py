"""What has to be true of a reader's cluster before anything is written to it; each failure says what to do.

Functions over what kubectl printed. Everything that is wrong is reported at once.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from demo.chart import NAMESPACE as SYSTEM
from demo.chart import OPERATOR
from demo.current.ownership import CRD, ours
from demo.ground import Kubectl
from demo.objects import Manifest, listed, read
from demo.service import NAMESPACE
from testbed.errors import TestbedError

OLDEST = (1, 31)  # as in Chart.yaml's kubeVersion
PLATFORM = ("linux", "amd64")
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


@dataclass(frozen=True)
class Right:
    """Something the reader's user has to be allowed to do. `namespace` is empty for what lies in none."""

    verb: str
    group: str
    resource: str
    namespace: str
    why: str

    @property
    def question(self) -> str:
        """As one asks the cluster oneself."""
        name, _, sub = self.resource.partition("/")
        words = f"{self.verb} {name}.{self.group}" if self.group else f"{self.verb} {name}"
        place = f" -n {self.namespace}" if self.namespace else ""
        return f"kubectl auth can-i {words}{f' --subresource={sub}' if sub else ''}{place}"


RBAC = "rbac.authorization.k8s.io"
RIGHTS = (
    Right("create", "", "namespaces", "", "the demo has two of its own"),
    Right("delete", "", "namespaces", "", "demo-down removes them"),
    Right("create", "apiextensions.k8s.io", "customresourcedefinitions", "", "the chart brings the CRD"),
    Right("create", RBAC, "clusterroles", "", "the operator's rights"),
    Right("create", RBAC, "clusterrolebindings", "", "the operator's rights"),
    Right("create", "", "secrets", SYSTEM, "helm keeps its release there"),
    Right("create", "", "serviceaccounts", SYSTEM, "the operator's"),
    Right("create", "", "services", SYSTEM, "the operator's metrics"),
    Right("create", "apps", "deployments", SYSTEM, "the operator"),
    Right("create", "", "persistentvolumeclaims", NAMESPACE, "the weights are kept there"),
    Right("create", "batch", "jobs", NAMESPACE, "copies the weights"),
    Right("create", "graphpod.dev", "inferenceservices", NAMESPACE, "the service itself"),
    Right("patch", "apps", "deployments", NAMESPACE, "a new build restarts its pods"),
    Right("get", "", "pods/log", NAMESPACE, "evidence when something fails"),
    Right("get", "", "pods/proxy", NAMESPACE, "the engine's counters are read there"),
    Right("create", "", "pods/portforward", NAMESPACE, "the way to the service from this machine"),
)


def check(cluster: Kubectl, storage_class: str) -> str:
    """What the cluster is, in a line. Raises `TestbedError` with every reason why the demo cannot run there."""
    version = json.loads(cluster.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
    if old := too_old(version):
        raise TestbedError(old)  # the rest may not be answered by it
    if missing := denied(allowed(cluster, RIGHTS)):
        raise TestbedError(missing)
    nodes = listed(cluster, "nodes")
    problems = [
        no_node(nodes),
        no_class(listed(cluster, "storageclasses"), storage_class),
        *foreign(
            read(cluster, "crd", CRD),
            [read(cluster, "namespace", name) for name in (SYSTEM, NAMESPACE)],
            read(cluster, "clusterrole", OPERATOR),
        ),
    ]
    if found := [problem for problem in problems if problem]:
        raise TestbedError("this cluster cannot take the demo as it is:\n" + "\n".join(f"- {one}" for one in found))
    names = ", ".join(node["metadata"]["name"] for node in nodes[:3]) + (", …" if len(nodes) > 3 else "")
    return f"Kubernetes {version.removeprefix('v')}, {len(nodes)} node(s): {names}"


def too_old(version: str) -> str | None:
    found = re.match(r"v?(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) >= OLDEST:
        return None
    wanted = ".".join(map(str, OLDEST))
    return f"the cluster runs Kubernetes {version}; graphpod needs {wanted} or newer: upgrade it or use another cluster"


def allowed(cluster: Kubectl, rights: Iterable[Right]) -> list[tuple[Right, bool]]:
    """Asked of the API server for the reader's own user, as `kubectl auth can-i` does, in one go."""
    rights = list(rights)
    reviews = [
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": _attributes(right)},
        }
        for right in rights
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": reviews})
    answers = cluster.kubectl("create", "-f", "-", "-o", "jsonpath={.status.allowed} ", input=text).split()
    return [(right, answer == "true") for right, answer in zip(rights, answers, strict=True)]


def _attributes(right: Right) -> dict[str, str]:
    name, _, sub = right.resource.partition("/")
    found = {"verb": right.verb, "group": right.group, "resource": name, "subresource": sub}
    return found | {"namespace": right.namespace}


def denied(answers: Iterable[tuple[Right, bool]]) -> str | None:
    lines = [f"- {right.question}   # {right.why}" for right, yes in answers if not yes]
    if not lines:
        return None
    return "your user lacks rights the demo needs; each of these has to answer yes:\n" + "\n".join(lines)


def no_node(nodes: Iterable[Manifest]) -> str | None:
    """Our images are for one platform."""
    for node in nodes:
        info, spec = node["status"]["nodeInfo"], node.get("spec", {})
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])
        if ready and not spec.get("unschedulable") and (info["operatingSystem"], info["architecture"]) == PLATFORM:
            return None
    platform = "/".join(PLATFORM)
    return f"no node is Ready, schedulable and {platform}, which the images are for: add one (`kubectl get nodes`)"


def no_class(classes: list[Manifest], wanted: str) -> str | None:
    names = [one["metadata"]["name"] for one in classes]
    if wanted:
        there = f"there are: {', '.join(names) or 'none'}"
        return None if wanted in names else f"CLASS={wanted}, but the cluster has no such StorageClass; {there}"
    if any((one["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true" for one in classes):
        return None
    hint = f"name one with CLASS=…: {', '.join(names)}" if names else "install a storage provisioner, it brings one"
    return f"no StorageClass is the default, so the claim of the weights would wait for ever; {hint}"


def foreign(crd: Manifest | None, namespaces: Iterable[Manifest | None], role: Manifest | None) -> list[str]:
    """What of graphpod is in the cluster that the demo did not make, and so must not change."""
    present = [found for found in namespaces if found]
    if any(ours(found) and found["metadata"]["name"] == SYSTEM for found in present):
        crd = role = None  # both came with our own release
    problems = [
        f"namespace {found['metadata']['name']} is there and not the demo's: the demo would mix with what is in it; "
        "rename or delete it"
        for found in present
        if not ours(found)
    ]
    if crd or role:
        found = crd or role or {}
        notes = found["metadata"].get("annotations") or {}
        release = notes.get("meta.helm.sh/release-name", "?")
        where = notes.get("meta.helm.sh/release-namespace", "?")
        problems.append(
            f"graphpod is there already ({'its CRD' if crd else 'its ClusterRole'}, release {release} in namespace "
            f"{where}), and the demo would change it for everybody: apply examples/smollm2.yaml to that one instead, "
            "or remove it (docs/operations/install.md, Uninstall)"
        )
    return problems
