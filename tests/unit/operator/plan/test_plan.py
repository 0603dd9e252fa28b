"""The planner: goldens as YAML in and out, and what must hold for every spec."""

import dataclasses
import importlib
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from graphpod_operator.cache.child import Child, ControllerRef
from graphpod_operator.cache.key import Key
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.kube.resources import CHILDREN, Resource
from graphpod_operator.plan import desired_children
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.plan.refused import Refused
from graphpod_operator.plan.writes import Create, Delete, Look, Update, writes
from graphpod_policy import EngineConfig
from tests.unit.operator.objects import INSTALLED, UID, as_live, inference_service, outcome, planned, pod, remembered

GOLDENS = Path(__file__).parents[1].joinpath("goldens")
SPECS = sorted(path.name.removesuffix(".in.yaml") for path in GOLDENS.glob("*.in.yaml"))


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_gives_the_children_of_its_golden(name: str) -> None:
    """With UPDATE_GOLDENS=1 in the environment the output is written instead; read the diff before you commit it."""
    spec = yaml.safe_load((GOLDENS / f"{name}.in.yaml").read_text())
    children = [child.body for child in planned(**spec).children]
    for body in children:
        body.get("data", {}).pop("plan.json", None)  # words of the rules, which have tests of their own
    golden = GOLDENS / f"{name}.out.yaml"
    if os.environ.get("UPDATE_GOLDENS"):
        golden.write_text(yaml.safe_dump_all(children, sort_keys=False, width=110))
    assert list(yaml.safe_load_all(golden.read_text())) == children


@pytest.mark.parametrize(("owner", "name"), [(desired_children, "made_from"), (EngineConfig, "of")])
def test_a_look_at_a_service_makes_a_fingerprint_and_a_configuration_of_its_spec_once(
    owner: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart looks at every service."""
    make, calls = getattr(owner, name), []

    def counted(*given: Any, **named: Any) -> Any:
        calls.append(name)
        return make(*given, **named)

    monkeypatch.setattr(owner, name, counted)
    planned()
    assert calls == [name]


def look_at(*children: Child) -> Look:
    """What finds these children, and no other."""
    known = {(child.resource, child.namespace, child.name): child for child in children}
    return lambda resource, namespace, name: known.get((resource, namespace, name))


policies = {
    "prefill": st.sampled_from(["Auto", "Breakable", "Disabled"]),
    "decode": st.sampled_from(["Auto", "Full", "Breakable", "Disabled"]),
}
sizes = st.lists(st.integers(1, 300), min_size=1, max_size=20, unique=True).map(sorted)
quantities = st.sampled_from(["100m", "0.5", 2, "1.5Gi", "1024Mi", "2000k"])
amounts = st.sampled_from([1 << 30, "1.5Gi", "1024Mi", "2000k"])
specs = st.fixed_dictionaries(
    {},
    optional={
        "engine": st.fixed_dictionaries(
            {},
            optional={
                "maxModelLen": st.integers(16, 8192),
                "maxBatch": st.integers(1, 64),
                "pageSize": st.integers(1, 256),
                "kvCacheMemory": amounts,
                "dtype": st.sampled_from(["float32", "bfloat16"]),
                "image": st.just("a/b:c"),
            },
        ),
        "graph": st.fixed_dictionaries(
            {},
            optional={
                **policies,
                "sizes": st.fixed_dictionaries({}, optional={"prefill": sizes, "decode": sizes}),
                "onCaptureFailure": st.sampled_from(["Degrade", "Fail"]),
            },
        ),
        "replicas": st.integers(0, 5),
        "suspend": st.booleans(),
        "resources": st.fixed_dictionaries(
            {}, optional={"limits": st.fixed_dictionaries({}, optional={"cpu": quantities, "memory": amounts})}
        ),
        "placement": st.fixed_dictionaries(
            {}, optional={"nodeSelector": st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"))}
        ),
        "rollout": st.fixed_dictionaries(
            {}, optional={"strategy": st.sampled_from(["Replace", "Surge"]), "drainSeconds": st.integers(0, 60)}
        ),
    },
)


@given(specs)
def test_planning_again_after_the_apply_writes_nothing(spec: dict[str, Any]) -> None:
    desired = planned(**spec)
    found = Service.of(inference_service(**spec))
    again = planned(**spec)
    assert writes(found, again, look_at(*map(as_live, desired.children))) == ()


@given(specs, st.sets(st.sampled_from(CHILDREN)), st.sets(st.sampled_from(CHILDREN)))
def test_exactly_the_children_that_differ_are_written(
    spec: dict[str, Any], absent: set[Resource], edited: set[Resource]
) -> None:
    desired = planned(**spec)
    found = Service.of(inference_service(**spec))

    kinds = {wanted.resource for wanted in desired.children}
    live = [
        as_live(wanted, **({"owned": "other"} if wanted.resource in edited else {}))
        for wanted in desired.children
        if wanted.resource not in absent
    ]
    needed = writes(found, desired, look_at(*live))
    assert not isinstance(needed, Refused)
    assert {write.wanted.resource for write in needed if isinstance(write, Create)} == absent & kinds
    assert {write.wanted.resource for write in needed if isinstance(write, Update)} == (edited - absent) & kinds


def budgets(wanted: Desired) -> list[dict[str, Any]]:
    return [child.body["spec"] for child in wanted.children if child.resource is Resource.PodDisruptionBudget]


@pytest.mark.parametrize(("replicas", "count"), [(0, 0), (1, 0), (2, 1), (8, 1)])
def test_two_replicas_or_more_have_a_disruption_budget(replicas: int, count: int) -> None:
    assert len(budgets(planned(replicas=replicas))) == count
    assert budgets(planned(replicas=replicas, suspend=True)) == []


@pytest.mark.parametrize(("failed_start", "policy"), [(False, "IfHealthyBudget"), (True, "AlwaysAllow")])
def test_a_pod_that_failed_a_start_holds_up_no_drain(failed_start: bool, policy: str) -> None:
    known = Pod.of(pod(engine={"lastState": {"terminated": {"exitCode": 1}}} if failed_start else None))
    wanted = desire(PlanInput(Service.of(inference_service(replicas=2)), INSTALLED, pods=[known]))
    assert isinstance(wanted, Desired)
    (budget,) = budgets(wanted)
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, policy)


def test_a_budget_that_is_not_wanted_any_more_is_removed_and_that_of_somebody_else_stays() -> None:
    many, one = planned(replicas=2), planned()
    found = Service.of(inference_service())
    (budget,) = [child for child in many.children if child.resource is Resource.PodDisruptionBudget]
    children = list(map(as_live, one.children))
    assert writes(found, one, look_at(*children, as_live(budget))) == (Delete(as_live(budget)),)
    for theirs in (as_live(budget, controller=None), as_live(budget, deleting=True)):
        assert writes(found, one, look_at(*children, theirs)) == ()


@pytest.mark.parametrize("replicas", [0, 2, 8])
def test_scaling_restarts_no_pod(replicas: int) -> None:
    """The wish to be spread over nodes is in every template, not only in those with several replicas."""
    one, other = (
        child.body["spec"]["template"]
        for spec in ({"replicas": 1}, {"replicas": replicas})
        for child in planned(**spec).children
        if child.resource is Resource.Deployment
    )
    assert one == other
    assert "podAntiAffinity" in one["spec"]["affinity"]


@given(specs)
@example({"placement": {"affinity": {"podAntiAffinity": {}}}})
def test_no_map_or_list_of_a_child_is_empty(spec: dict[str, Any]) -> None:
    """An empty struct of ours would make every foreign field in it ours, too."""

    def check(value: object, path: str) -> None:
        assert value != {}, path
        assert value != [], path
        if isinstance(value, dict):
            for key, inner in value.items():
                check(inner, f"{path}.{key}")
        if isinstance(value, list):
            for inner in value:
                check(inner, path)

    for child in planned(**spec).children:
        check(child.body, child.resource.kind)


def test_the_text_of_the_rules_changes_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    before = planned()
    memory = remembered(before)
    resolver, table = (importlib.import_module(f"graphpod_policy.{name}") for name in ("resolution.resolve", "rules"))
    shouted = {
        candidate: tuple(dataclasses.replace(row, because="OTHER", hint="OTHER", detail=None) for row in rows)
        for candidate, rows in table.BY_CANDIDATE.items()
    }
    monkeypatch.setattr(table, "BY_CANDIDATE", shouted)
    monkeypatch.setattr(resolver, "RESOLVER_REVISION", "another")
    monkeypatch.setattr(
        "graphpod_operator.plan.desired_children._resolved", resolver.resolve
    )  # which remembers no plan
    assert {decision.because for decision in planned().policy.decisions} == {"OTHER"}
    after = desire(PlanInput(Service.of(inference_service()), INSTALLED, [memory]))
    assert isinstance(after, Desired)
    assert [child.body for child in after.children] == [child.body for child in before.children]


def test_the_queue_of_kueue_is_told_to_the_workload_and_its_pods_only() -> None:
    raw = inference_service()
    raw["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus"}
    told = desire(PlanInput(Service.of(raw), INSTALLED))
    assert isinstance(told, Desired)
    labelled = [child for child in told.children if "kueue.x-k8s.io/queue-name" in child.body["metadata"]["labels"]]
    assert [child.resource for child in labelled] == [Resource.Deployment]
    assert labelled[0].body["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"


def test_status_never_enters_a_child() -> None:
    """The start budget of the probe comes from the plan alone: history would cause rollouts."""
    raw = inference_service(status={"graph": {"budgetSeconds": 9999}, "lastFailure": {"restarts": 7}})
    told = desire(PlanInput(Service.of(raw), INSTALLED))
    assert isinstance(told, Desired)
    assert [child.body for child in told.children] == [child.body for child in planned().children]


@pytest.mark.parametrize(
    ("spec", "surge", "unavailable"),
    [({}, 1, 0), ({"rollout": {"strategy": "Replace"}}, 0, 1), ({"rollout": {"strategy": "Surge"}}, 1, 0)],
)
def test_a_rollout_is_always_rolling(spec: dict[str, Any], surge: int, unavailable: int) -> None:
    deployment = planned(**spec).children[-1].body["spec"]
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    assert deployment["strategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"model": {"uri": "s3://b/k"}}, Reason.SpecInvalid, "spec.model.cache is required for downloads"),
        (
            {"resources": {"limits": {"nvidia.com/gpu": 2}}},
            Reason.FeatureNotBuilt,
            "spec.resources.limits[nvidia.com/gpu]: GPUs without a rank (2 GPUs, 1 rank) is not built in this "
            "version; set spec.parallelism so that tensor times pipeline is their number, or ask for a GPU for each "
            "rank",
        ),
        (
            {"resources": {"limits": {"nvidia.com/mig-1g.10gb": 1}}},
            Reason.FeatureNotBuilt,
            "spec.resources.limits[nvidia.com/mig-1g.10gb]: engines of this version run on whole NVIDIA GPUs; ask for "
            "nvidia.com/gpu instead",
        ),
        ({"resources": {"requests": {"amd.com/gpu": "1"}}}, Reason.FeatureNotBuilt, "spec.resources.requests[amd.com"),
        ({"engine": {"attention": "Triton"}}, Reason.FeatureNotBuilt, "use one of Auto, Torch, FlashInfer, Fa3"),
        ({"engine": {"deterministic": True}}, Reason.FeatureNotBuilt, "spec.engine.deterministic"),
        (
            {"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "2047Mi"}}},
            Reason.SpecInvalid,
            "spec.resources.requests.memory: 2Gi is more than spec.resources.limits.memory, 2047Mi",
        ),
        (
            {"resources": {"requests": {"example.com/nic": 2}, "limits": {"example.com/nic": 1}}},
            Reason.SpecInvalid,
            "spec.resources.requests[example.com/nic]: 2 is more than spec.resources.limits[example.com/nic], 1",
        ),
        (
            {"resources": {"requests": {"nvidia.com/gpu": 2}}},
            Reason.SpecInvalid,
            "spec.resources.requests[nvidia.com/gpu]: 2, and spec.resources.limits[nvidia.com/gpu] is not set: "
            "Kubernetes counts devices and huge pages by their limit; remove the request, and set "
            "spec.resources.limits[nvidia.com/gpu]",
        ),
        (
            {"resources": {"requests": {"example.com/nic": 1}}},
            Reason.SpecInvalid,
            "spec.resources.requests[example.com/nic]: 1, and spec.resources.limits[example.com/nic] is not set",
        ),
        (
            {"resources": {"limits": {"cpu": 2, "gpu": 1}}},
            Reason.SpecInvalid,
            "spec.resources.limits.gpu: not a resource of a container; use cpu, memory, ephemeral-storage, or a name",
        ),
        (
            {"resources": {"limits": {"nvidia.com/gpu": "500m"}}},
            Reason.SpecInvalid,
            "spec.resources.limits[nvidia.com/gpu]: 500m is not a whole number",
        ),
        (
            {"resources": {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}},
            Reason.SpecInvalid,
            "spec.resources.requests[nvidia.com/gpu]: 1, and spec.resources.limits[nvidia.com/gpu] is 2: Kubernetes",
        ),
        ({"unknown": 1}, Reason.SpecInvalid, "spec.unknown"),
        ({"replicas": -1}, Reason.SpecInvalid, "spec.replicas"),
        ({"graph": {"decode": "Piecewise"}}, Reason.SpecInvalid, "spec.graph.decode: must be one of"),
        (
            {"graph": {"prefill": "Breakable", "sizes": {"prefill": [5000]}, "onUnsupported": "Fail"},
             "engine": {"maxModelLen": 16, "maxBatch": 1}},
            Reason.PolicyRefused,
            "rule LadderEmpty",
        ),
    ],
)  # fmt: skip
def test_a_spec_that_cannot_run_is_refused_by_reason_and_field(
    spec: dict[str, Any], reason: Reason, words: str
) -> None:
    refused = outcome(**spec)
    assert isinstance(refused, Refused)
    assert refused.reason is reason
    assert words in refused.what


@pytest.mark.parametrize(
    ("controller", "reason"),
    [
        (None, Reason.NameCollision),
        (ControllerRef("apps", "ReplicaSet", "demo", "x"), Reason.NameCollision),
        (ControllerRef("apps", "InferenceService", "other", "x"), Reason.NameCollision),
        (ControllerRef("graphpod.dev", "InferenceService", "demo", "an earlier uid"), Reason.PreviousDeleting),
        (ControllerRef("serving.kserve.io", "InferenceService", "demo", UID), Reason.NameCollision),
    ],
)
def test_a_child_of_somebody_else_stops_every_write(controller: ControllerRef | None, reason: Reason) -> None:
    desired = planned()
    found = Service.of(inference_service())

    (theirs,) = [wanted for wanted in desired.children if wanted.resource is Resource.Service]
    refused = writes(found, desired, look_at(as_live(theirs, controller=controller)))
    assert isinstance(refused, Refused)
    assert refused.reason is reason
    assert "Service ns/demo" in refused.what


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, Reason.OwnerMissing),
        ({"applied": ""}, Reason.NameCollision),
        ({"key": Key("ns", "other")}, Reason.NameCollision),
    ],
    ids=["applied for it", "never applied", "of another service"],
)
def test_an_object_that_was_applied_for_the_service_and_has_no_owner_has_lost_it(
    change: dict[str, Any], reason: Reason
) -> None:
    desired, found = planned(), Service.of(inference_service())
    (wanted,) = [child for child in desired.children if child.resource is Resource.Service]
    live = dataclasses.replace(as_live(wanted, controller=None, key=found.key), **change)
    refused = writes(found, desired, look_at(live))
    assert isinstance(refused, Refused)
    assert refused.reason is reason
