"""`make demo CLUSTER=current` on a cluster of somebody else's: from its kubeconfig to an answer, and back.

The tests of this file are one story in its order: refused, answered, half removed, removed. `make samples` answers with
all graphs of the example: a start of a minute.
"""

import json
import os
import re
import subprocess

import pytest
import yaml

from demo.chart import NAMESPACE as SYSTEM
from demo.chart import RELEASE
from demo.images import provide
from demo.local import Testbed
from demo.service import EXAMPLE, NAMESPACE
from testbed import Cluster
from tests.crd import drop_crd

PREFIX = "graphpod.dev"  # where the node finds the images that were loaded into it
NOWHERE = "127.0.0.1:1"  # a registry that refuses at once; an unknown name is looked for until its answer is late
KINDS = "namespaces,customresourcedefinitions,clusterroles,clusterrolebindings,storageclasses"
LIMIT = 580.0  # s


@pytest.fixture(scope="module")
def theirs(node_cluster: Cluster) -> Cluster:
    """A cluster with our images in its nodes, and nothing else of ours."""
    provide(node_cluster, print)
    Testbed(node_cluster).helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait", "--ignore-not-found")
    for name in (SYSTEM, NAMESPACE):
        node_cluster.kubectl("delete", "namespace", name, "--ignore-not-found", timeout=120)
    drop_crd(node_cluster)
    return node_cluster


def make(cluster: Cluster, goal: str, *variables: str) -> subprocess.CompletedProcess[str]:
    """As its reader types it, with the name of the context."""
    name = cluster.kubectl("config", "current-context").strip()
    command = ["make", goal, "CLUSTER=current", f"CONFIRM={name}", *variables]
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment)


def begin(cluster: Cluster, sizes: dict[str, list[int]]) -> None:
    """The example's service by its reader, with these sizes of graphs; no node has room before the demo's own apply."""
    service = yaml.safe_load(EXAMPLE.read_text())
    service["spec"]["graph"] |= {"sizes": sizes}
    service["spec"]["resources"] = {"requests": {"cpu": "1000"}}
    cluster.kubectl("apply", "--server-side", "--field-manager=reader", "-f", "-", input=json.dumps(service))


def objects(cluster: Cluster) -> set[str]:
    return set(cluster.kubectl("get", KINDS, "-o", "name").split())


@pytest.fixture(scope="module")
def before(theirs: Cluster) -> set[str]:
    """What is there when the demo comes, and has to be there again at the end."""
    return objects(theirs)


def test_an_image_that_cannot_be_pulled_is_told_early(theirs: Cluster, before: set[str]) -> None:
    done = make(theirs, "demo", f"IMAGES={PREFIX}", f"OPERATOR_IMAGE={NOWHERE}/operator:never-built")
    assert done.returncode != 0
    assert re.search(
        rf"(ImagePullBackOff|ErrImageNeverPull): pod .*, image {NOWHERE}/operator:never-built", done.stderr
    )
    assert objects(theirs) > before, "the next run goes on from there"


def test_the_next_run_goes_on_from_there_to_an_answer(theirs: Cluster) -> None:
    """With two graphs, by a field of somebody's that the demo leaves alone."""
    begin(theirs, {"prefill": [16], "decode": [1]})
    done = make(theirs, "demo", f"IMAGES={PREFIX}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "answer: The capital of France is Paris." in done.stdout
    assert "2/2 graphs" in done.stdout


@pytest.mark.slow
def test_from_nothing_all_graphs_of_the_example_are_captured(theirs: Cluster) -> None:
    make(theirs, "demo-down")
    done = make(theirs, "demo", f"IMAGES={PREFIX}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "answer: The capital of France is Paris." in done.stdout
    assert "26/26 graphs" in done.stdout


def test_a_namespace_that_holds_what_the_demo_did_not_make_stays(theirs: Cluster) -> None:
    theirs.kubectl("create", "configmap", "mine", "-n", NAMESPACE)
    done = make(theirs, "demo-down")
    assert done.returncode == 0, done.stderr
    assert f"namespace {NAMESPACE} stays, it holds what the demo did not make: ConfigMap/mine" in done.stdout
    theirs.kubectl("delete", "configmap", "mine", "-n", NAMESPACE)


def test_demo_down_leaves_what_was_there_before(theirs: Cluster, before: set[str]) -> None:
    done = make(theirs, "demo-down")
    assert "nothing of it is left" in done.stdout
    assert objects(theirs) == before
