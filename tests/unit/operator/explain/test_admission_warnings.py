"""The webhook's warnings say what explain says."""

from typing import Any

from graphpod_operator.explain.admission_warnings import MOST, WARNING_MAX, WILL_NOT_RUN, warnings_of
from graphpod_operator.install.allow_lists import AllowLists
from graphpod_operator.kube import bounds
from tests.unit.operator.objects import inference_service


def warnings(**spec: Any) -> list[str]:
    return warnings_of(inference_service(**spec), {})


def test_a_decision_is_told_with_its_rule_and_its_hint_once_for_both_phases() -> None:
    (told,) = [line for line in warnings() if "rule NoCuda" in line]
    assert told.startswith("prefill and decode: ")
    assert "expected on a CPU" in told


def test_a_feature_that_is_not_built_comes_first_and_names_the_field() -> None:
    assert warnings(engine={"deterministic": True})[0].startswith(f"{WILL_NOT_RUN}spec.engine.deterministic: ")


def test_no_warning_says_that_a_service_is_refused_since_it_is_written() -> None:
    """The API server goes on to print `created`."""
    wrong = {"engine": {"deterministic": True}, "replicas": -1}
    none = AllowLists(images=())
    for spec, allowed in ((wrong, AllowLists()), ({"engine": {"image": "a/b:c"}}, none), ({"role": "Prefill"}, none)):
        told = warnings_of(inference_service(**spec), {}, allowed)
        assert told[0].startswith("will not run until this is fixed: spec.")
        assert not [line for line in told if "refused" in line]


def test_a_service_that_is_to_have_no_pods_has_nothing_to_fix() -> None:
    assert warnings(suspend=True)[0].startswith("Suspended: no pod will start: spec.suspend is true; ")


def test_a_policy_that_is_refused_names_phase_and_rule() -> None:
    told = warnings(
        graph={"prefill": "Breakable", "sizes": {"prefill": [5000]}, "onUnsupported": "Fail"},
        engine={"maxModelLen": 16, "maxBatch": 1},
    )
    assert any(line.startswith(f"{WILL_NOT_RUN}spec.graph.prefill: rule LadderEmpty") for line in told)


def test_a_spec_the_models_refuse_is_allowed_and_told() -> None:
    assert warnings(replicas=-1)[0].startswith(f"{WILL_NOT_RUN}spec.replicas: must be at least 0, found -1")
    assert warnings(graph={"decode": "Piecewise"})[0].startswith(
        f"{WILL_NOT_RUN}spec.graph.decode: must be one of Auto, Full"
    )


def test_a_spec_that_the_operator_does_not_read_is_refused_before_it_is_explained() -> None:
    deep = bounds.stripped(inference_service(), "spec.podTemplate: the spec is nested more than 32 levels deep")
    assert warnings_of(deep, {}) == [f"{WILL_NOT_RUN}spec.podTemplate: the spec is nested more than 32 levels deep"]
    assert warnings_of(deep, inference_service()) == warnings_of(deep, {})
    assert warnings_of(deep, deep) == []


def test_a_change_beside_the_spec_warns_of_nothing() -> None:
    old = inference_service()
    new = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}
    assert warnings_of(new, old) == []


def test_warnings_are_few_and_short() -> None:
    told = warnings(
        engine={
            "deterministic": True,
            "quantization": "Fp8",
            "kvCacheDtype": "Fp8",
            "fullCompile": True,
            "sleep": True,
        },
        parallelism={"tensor": 2, "pipeline": 2, "data": 2, "expert": 2, "context": 2, "nodes": 2},
        role="Prefill",
        slo={"ttft": "1s"},
        updates="Auto",
    )
    assert len(told) <= MOST + 1
    assert max(map(len, told)) <= WARNING_MAX
    assert sum(map(len, told)) <= 4096
