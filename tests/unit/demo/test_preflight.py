"""What is said of a cluster that cannot take the demo."""

import pytest

from demo.current.ownership import DEMO, MARK
from demo.current.preflight import DEFAULT_CLASS, RIGHTS, Right, denied, foreign, no_class, no_node, too_old


def node(system: str = "linux", processor: str = "amd64", ready: str = "True", **spec: object) -> dict:
    info = {"operatingSystem": system, "architecture": processor}
    return {"status": {"nodeInfo": info, "conditions": [{"type": "Ready", "status": ready}]}, "spec": spec}


def storage(name: str, default: str | None = None) -> dict:
    return {"metadata": {"name": name, **({"annotations": {DEFAULT_CLASS: default}} if default else {})}}


def made(name: str, **annotations: str) -> dict:
    return {"metadata": {"name": name, "annotations": annotations}}


@pytest.mark.parametrize("version", ["v1.31.0", "v1.31.4-gke.1", "v1.36.3", "v2.0.0"])
def test_a_version_from_1_31_on_will_do(version: str) -> None:
    assert too_old(version) is None


@pytest.mark.parametrize("version", ["v1.30.9", "v1.9.0", "unknown"])
def test_an_older_one_is_told_with_the_one_that_is_needed(version: str) -> None:
    assert version in (too_old(version) or "")
    assert "1.31" in (too_old(version) or "")


def test_one_node_that_can_run_the_images_is_enough() -> None:
    others = [node(processor="arm64"), node(ready="False"), node(unschedulable=True), node(system="windows")]
    assert "linux/amd64" in (no_node(others) or "")
    assert no_node([*others, node()]) is None


def test_a_claim_needs_a_class() -> None:
    assert no_class([storage("slow"), storage("fast", "true")], "") is None
    assert "CLASS=…: slow, fast" in (no_class([storage("slow"), storage("fast", "false")], "") or "")
    assert "storage provisioner" in (no_class([], "") or "")
    assert no_class([storage("slow")], "slow") is None
    assert "there are: slow" in (no_class([storage("slow")], "fast") or "")


def test_each_missing_right_is_a_command_that_asks_for_it() -> None:
    some = Right("get", "", "pods/proxy", "here", "the counters")
    other = Right("create", "apps", "deployments", "", "the operator")
    assert denied([(right, True) for right in RIGHTS]) is None
    told = denied([(some, False), (other, False)]) or ""
    assert "kubectl auth can-i get pods --subresource=proxy -n here   # the counters" in told
    assert "kubectl auth can-i create deployments.apps   # the operator" in told


def test_graphpod_from_elsewhere_is_left_alone_and_named() -> None:
    notes = {"meta.helm.sh/release-name": "ours", "meta.helm.sh/release-namespace": "platform"}
    (told,) = foreign(made("crd", **notes), [None, None], None)
    assert "its CRD, release ours in namespace platform" in told
    (told,) = foreign(None, [made("graphpod-demo"), None], None)
    assert "namespace graphpod-demo is there and not the demo's" in told


def test_what_the_demo_made_itself_is_no_hindrance() -> None:
    system = {"metadata": {"name": "graphpod-system", "labels": {MARK: DEMO}}}
    service = {"metadata": {"name": "graphpod-demo", "labels": {MARK: DEMO}}}
    assert foreign(made("crd"), [system, service], made("role")) == []
    assert len(foreign(made("crd"), [None, service], None)) == 1, "the mark that counts is the system namespace's"
