"""A service of several ranks: one pod with a GPU for each, and what ranks do not have refused before there is a pod."""

import json
from typing import Any

import pytest

from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.refused import Refused
from graphpod_policy.config import FeatureConfig
from tests.unit.operator.objects import outcome, planned

GPUS = "nvidia.com/gpu"


def gpus(tensor: int, count: int, pipeline: int = 1, **more: Any) -> dict[str, Any]:
    spread = {"tensor": tensor, "pipeline": pipeline}
    return {"parallelism": spread, "resources": {"limits": {GPUS: count}}, **more}


def pod(wanted: Desired) -> dict[str, Any]:
    found: dict[str, Any] = wanted.workload["template"]["spec"]
    return found


def config(wanted: Desired) -> dict[str, Any]:
    (body,) = [child.body for child in wanted.children if child.resource is Resource.ConfigMap]
    found: dict[str, Any] = json.loads(body["data"]["engine.json"])
    return found


@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (1, 3), (2, 2)])
def test_a_pod_has_a_gpu_for_each_rank_and_shared_memory_for_what_they_exchange(tensor: int, pipeline: int) -> None:
    ranks = tensor * pipeline
    wanted = planned(**gpus(tensor, ranks, pipeline))
    (engine,) = pod(wanted)["containers"]
    assert engine["resources"]["limits"] == {GPUS: str(ranks)}
    assert {"name": "shm", "mountPath": "/dev/shm"} in engine["volumeMounts"]
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}} in pod(wanted)["volumes"]
    found = FeatureConfig(**{name: config(wanted)["features"].get(name, 1) for name in ("tensor", "pipeline", "gpus")})
    assert (found.tensor, found.pipeline, found.gpus) == (tensor, pipeline, ranks)


def test_the_processors_of_a_container_are_shared_out_to_its_ranks() -> None:
    for tensor, pipeline, threads in ((1, 1, 6), (2, 1, 3), (4, 1, 1), (8, 1, 1), (1, 3, 2), (2, 3, 1)):
        wanted = planned(parallelism={"tensor": tensor, "pipeline": pipeline}, resources={"limits": {"cpu": "6"}})
        assert config(wanted)["threads"] == threads
        assert {"name": "OMP_NUM_THREADS", "value": str(threads)} in pod(wanted)["containers"][0]["env"]


def test_another_number_of_ranks_is_another_configuration_and_the_old_one_comes_back() -> None:
    one, two, staged, again = (planned(**gpus(*spread)) for spread in ((1, 1), (2, 2), (1, 2, 2), (1, 1)))
    assert len({one.config_hash, two.config_hash, staged.config_hash}) == 3
    assert one.template != two.template != staged.template != one.template
    assert (again.config_hash, again.template, again.revision) == (one.config_hash, one.template, one.revision)


def test_experts_are_spread_over_the_ranks_of_tensor_in_another_configuration() -> None:
    limits = {"limits": {GPUS: 4}}
    columns, pairs, whole, again = (
        planned(parallelism={"tensor": 4} | spread, resources=limits)
        for spread in ({}, {"expert": 2}, {"expert": 4}, {"expert": 1})
    )
    assert [config(one)["features"].get("expert") for one in (columns, pairs, whole)] == [None, 2, 4]
    assert [pod(one)["containers"][0]["resources"]["limits"] for one in (pairs, whole)] == [{GPUS: "4"}] * 2
    assert len({columns.config_hash, pairs.config_hash, whole.config_hash}) == 3
    assert (again.config_hash, again.template, again.revision) == (
        columns.config_hash, columns.template, columns.revision
    )  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        (gpus(2, 1), Reason.ParallelismInvalid, "2 ranks for 1 GPU; set spec.resources.limits[nvidia.com/gpu]: 2"),
        (gpus(2, 3), Reason.FeatureNotBuilt, "spec.resources.limits[nvidia.com/gpu]: GPUs without a rank (3 GPUs, 2"),
        (
            gpus(2, 2, 2),
            Reason.ParallelismInvalid,
            "tensor 2 and pipeline 2 make 4 ranks for 2 GPUs; set spec.resources.limits[nvidia.com/gpu]: 4",
        ),
        (gpus(2, 8, 2), Reason.FeatureNotBuilt, "GPUs without a rank (8 GPUs, 4 ranks)"),
        (
            {"parallelism": {"tensor": 16, "pipeline": 5}},
            Reason.ParallelismInvalid,
            "tensor 16 and pipeline 5 make 80 ranks, and a pod has at most 64",
        ),
        (
            gpus(1, 2, 2, engine={"speculative": {"method": "Ngram"}}),
            Reason.FeatureNotBuilt,
            "speculative decoding by Ngram with spec.parallelism.pipeline 2 is not built",
        ),
        (gpus(2, 2, engine={"sleep": True}), Reason.FeatureNotBuilt, "spec.engine.sleep: sleep with"),
        (
            gpus(2, 4, 2, engine={"speculative": {"method": "Mtp"}}),
            Reason.FeatureNotBuilt,
            "spec.engine.speculative: speculative decoding by Mtp with spec.parallelism.tensor 2 and "
            "spec.parallelism.pipeline 2 is not built in this version; use spec.parallelism.tensor "
            "alone, or remove spec.engine.speculative, or set "
            "spec.parallelism.tensor: 1 and spec.parallelism.pipeline: 1",
        ),
        (
            {"parallelism": {"tensor": 8}, "resources": {"limits": {GPUS: 8, "memory": "1Gi"}}},
            Reason.WeightsTooLarge,
            "the pod's memory limit of 1Gi leaves nothing for weights: front and 8 ranks themselves take at least "
            "2304Mi (assumed); raise spec.resources.limits.memory",
        ),
        (
            {"parallelism": {"pipeline": 4}, "resources": {"limits": {GPUS: 4, "memory": "512Mi"}}},
            Reason.WeightsTooLarge,
            "front and 4 ranks themselves take at least",
        ),
        (
            {"parallelism": {"tensor": 2, "expert": 4}, "resources": {"limits": {GPUS: 2}}},
            Reason.FeatureNotBuilt,
            "spec.parallelism.expert: 4 with spec.parallelism.tensor 2 is not built in this version: experts are "
            "spread over the ranks that share each layer; set spec.parallelism.expert: 2, or",
        ),
        (
            {"parallelism": {"tensor": 2, "expert": 128}, "resources": {"limits": {GPUS: 2}}},
            Reason.FeatureNotBuilt,
            "the ranks that share each layer; set spec.parallelism.expert: 2\n",
        ),
        (
            {"parallelism": {"tensor": 4, "expert": 3}, "resources": {"limits": {GPUS: 4}}},
            Reason.ParallelismInvalid,
            "expert 3 does not divide tensor 4; set spec.parallelism.expert to a number that divides both",
        ),
        (
            {"parallelism": {"tensor": 4, "expert": 4}, "resources": {"limits": {GPUS: 2}}},
            Reason.ParallelismInvalid,
            "tensor 4 and pipeline 1 make 4 ranks for 2 GPUs; set spec.resources.limits[nvidia.com/gpu]: 4",
        ),
        (
            {"parallelism": {"tensor": 4, "expert": 4, "allToAll": "DeepEp"}, "resources": {"limits": {GPUS: 4}}},
            Reason.FeatureNotBuilt,
            "spec.parallelism.allToAll: expert exchange (DeepEp) is not built in this version; remove the field: "
            "each rank computes the tokens of its own experts, and one sum adds them up",
        ),
    ],
)
def test_what_ranks_cannot_do_is_refused_by_name(spec: dict[str, Any], reason: Reason, words: str) -> None:
    refused = outcome(**spec)
    assert isinstance(refused, Refused)
    assert refused.reason is reason
    assert words in f"{refused.what}\n"
