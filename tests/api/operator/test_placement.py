"""Where pods may run, as an API server with pod-security `restricted` takes it: every pod is let in as it was asked."""

import json
from typing import Any

import pytest

from tests.api.operator.process import Operator
from tests.eventually import Eventually
from tests.places import Place

QUEUE = "kueue.x-k8s.io/queue-name"
GATE = "kueue.x-k8s.io/admission"
CLASSES = [
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "serving"},
        "value": 1000,
    },
    {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "nvidia"},
        "handler": "nvidia",
    },
]
SPEC: dict[str, Any] = {
    "replicas": 2,
    "engine": {"imagePullSecrets": [{"name": "registry"}], "imagePullPolicy": "Always"},
    "resources": {
        "requests": {"cpu": "1", "ephemeral-storage": "8Gi"},
        "limits": {"memory": "4Gi", "nvidia.com/gpu": 1},
        "sharedMemory": "2Gi",
        "scratch": "4Gi",
    },
    "placement": {
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "topologySpread": [{"topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "priorityClassName": "serving",
        "runtimeClassName": "nvidia",
        "schedulerName": "volcano",
        "doNotDisrupt": True,
    },
}


@pytest.fixture
def classes(place: Place) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": CLASSES}
    place.cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(listed))


@pytest.mark.usefixtures("classes")
def test_contract_22_what_placement_asks_stands_in_pods_that_restricted_lets_in(
    operator: Operator, place: Place, eventually: Eventually
) -> None:
    place.apply(metadata={"labels": {QUEUE: "gpus"}}, **SPEC)
    eventually(lambda: len(place.pods()) == 2)
    pod = place.pods()[0]
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert spec["nodeSelector"] == {"disk": "fast"}
    assert {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
    (spread,) = spec["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("topology.kubernetes.io/zone", "DoNotSchedule")
    assert (spec["priorityClassName"], spec["priority"]) == ("serving", 1000)
    assert spec["runtimeClassName"] == "nvidia"
    assert spec["schedulerName"] == "volcano"
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert container["imagePullPolicy"] == "Always"
    assert container["resources"]["limits"] == {"memory": "4Gi", "nvidia.com/gpu": "1"}
    assert container["resources"]["requests"]["ephemeral-storage"] == "8Gi"
    volumes = {volume["name"]: volume.get("emptyDir") for volume in spec["volumes"]}
    assert volumes["shm"] == {"medium": "Memory", "sizeLimit": "2Gi"}
    assert volumes["tmp"] == {"sizeLimit": "4Gi"}
    (apart,) = spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert apart["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert pod["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    assert pod["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
    assert pod["metadata"]["labels"][QUEUE] == "gpus"
    assert place.get("deployment", "demo")["metadata"]["labels"][QUEUE] == "gpus"


def test_a_pod_of_several_ranks_asks_for_their_gpus_and_another_number_is_a_rollout(
    operator: Operator, place: Place, eventually: Eventually
) -> None:
    def ranks(tensor: int) -> dict[str, Any]:
        return {"parallelism": {"tensor": tensor}, "resources": {"limits": {"nvidia.com/gpu": tensor}}}

    def template() -> dict[str, Any]:
        found: dict[str, Any] = place.get("deployment", "demo")["spec"]["template"]
        return found

    place.apply(**ranks(2))
    (pod,) = eventually(place.pods)
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}
    config = place.get("configmap", volumes["config"]["configMap"]["name"])
    assert json.loads(config["data"]["engine.json"])["features"]["tensor"] == 2
    before = template()
    place.apply(**ranks(4))
    eventually(lambda: template() != before)
    assert template()["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    place.apply(parallelism={"tensor": 4}, resources={"limits": {"nvidia.com/gpu": 2}})
    told = eventually(place.reached("Accepted", "False", "ParallelismInvalid"))
    assert "4 ranks for 2 GPUs; set spec.resources.limits[nvidia.com/gpu]: 4" in told
    assert template()["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    place.apply(**ranks(2))
    eventually(lambda: template() == before)


def test_contract_18_what_keeps_a_pod_from_node_autoscalers_does_not_come_and_go_with_the_number_of_pods(
    operator: Operator, place: Place, eventually: Eventually
) -> None:
    place.apply(placement={"doNotDisrupt": True})
    eventually(lambda: len(place.pods()) == 1)
    template = place.get("deployment", "demo")["spec"]["template"]
    place.apply(placement={"doNotDisrupt": True}, replicas=3)
    eventually(lambda: len(place.pods()) == 3)
    assert place.get("deployment", "demo")["spec"]["template"] == template


def test_contract_22_a_pod_that_kueue_holds_back_is_told_and_is_no_failure(
    operator: Operator, place: Place, eventually: Eventually
) -> None:
    """Kueue gates the pods that carry its label by a webhook; here an admission policy does."""
    # before that a bare pod, as the probe is one, is refused
    place.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=30s")
    place.cluster.kubectl("apply", "-f", "-", input=json.dumps(_gating(place.namespace)))
    try:
        eventually(lambda: _is_gated(place))
        place.apply(metadata={"labels": {QUEUE: "gpus"}})
        told = eventually(place.reached("Scheduled", "False", "QueuedByKueue"))
        assert GATE in told
        assert place.condition("Ready")[:2] == ("False", "QueuedByKueue")
        assert place.condition("Stalled") == ("", "", "")
        (pod,) = place.pods()
        admitted = json.dumps([{"op": "remove", "path": "/spec/schedulingGates"}])
        place.kubectl("patch", "pod", pod["metadata"]["name"], "--type=json", "-p", admitted)
        eventually(lambda: place.condition("Scheduled")[1] != "QueuedByKueue")
    finally:
        place.cluster.kubectl("delete", "-f", "-", input=json.dumps(_gating(place.namespace)))


def _is_gated(place: Place) -> bool:
    """Whether the policy is at work already: asked of a pod that is not stored."""
    safe = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "labels": {QUEUE: "gpus"}},
        "spec": {"containers": [{"name": "x", "image": "x", "securityContext": safe}]},
    }
    made = json.loads(place.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=json.dumps(pod)))
    return bool(made["spec"].get("schedulingGates"))


def _gating(namespace: str) -> dict[str, Any]:
    gates = f'Object{{spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: "{GATE}"}}]}}}}'
    api, kind = "admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    matched = {
        "resourceRules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "objectSelector": {"matchExpressions": [{"key": QUEUE, "operator": "Exists"}]},
    }
    policy = {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"name": f"kueue-{namespace}"},
        "spec": {
            "matchConstraints": matched,
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": gates}}],
        },
    }
    binding = {
        "apiVersion": api,
        "kind": f"{kind}Binding",
        "metadata": {"name": f"kueue-{namespace}"},
        "spec": {"policyName": f"kueue-{namespace}"},
    }
    return {"apiVersion": "v1", "kind": "List", "items": [policy, binding]}
