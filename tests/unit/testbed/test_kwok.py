"""Simulated nodes, and the Stages that move their pods."""

import ipaddress

import pytest
import yaml

from testbed.cluster import Cluster
from testbed.control.pki import Identities
from testbed.errors import TestbedError
from testbed.host.network import Addresses
from testbed.nodes import kwok
from testbed.paths import PACKAGE

OURS = list(yaml.safe_load_all(kwok.STAGES.read_text()))
ENGINES = list(yaml.safe_load_all((PACKAGE.parent / "stubs" / "stages.yaml").read_text()))


def simulation(folder, id=3):
    return kwok.Simulation(folder, Addresses(id), Identities(folder / "pki"), lambda name: folder / name)


def test_a_node_is_managed_by_kwok_and_offers_gpus():
    node = kwok.node(7)
    assert node["metadata"]["name"] == "node7"
    assert node["metadata"]["annotations"] == {kwok.SIMULATED: "fake"}
    assert int(node["status"]["allocatable"]["nvidia.com/gpu"]) > 0


def test_pods_and_services_have_addresses_of_their_own(tmp_path):
    pods = ipaddress.ip_network(simulation(tmp_path).pods)
    assert pods.subnet_of(ipaddress.ip_network(Addresses(3).cluster))
    assert not pods.overlaps(ipaddress.ip_network(Addresses(3).services))


def test_kwok_talks_to_nobody_but_the_api_server(tmp_path):
    simulation(tmp_path).write_files()
    options = yaml.safe_load((tmp_path / "kwok.json").read_text())["options"]
    assert options["serverAddress"].startswith("127.0.0.1:")
    assert options["manageAllNodes"] is False


@pytest.mark.parametrize("stage", [*OURS[1:], *ENGINES], ids=lambda stage: stage["metadata"]["name"])
def test_every_patch_of_a_pod_names_the_version_it_was_made_for(stage):
    assert stage["spec"]["resourceRef"] == {"apiGroup": "v1", "kind": "Pod"}
    patches = [step["patch"] for step in stage["spec"]["steps"] if "patch" in step]
    assert patches or [step for step in stage["spec"]["steps"] if step.get("delete")]
    for patch in patches:
        assert patch["subresource"] == "status"
        assert "metadata: {resourceVersion: {{" in patch["template"]


def test_what_an_engine_does_wins_over_what_a_kubelet_does():
    assert {stage["spec"].get("weight", 0) for stage in OURS} == {0}
    assert {stage["spec"].get("weight", 0) for stage in ENGINES} == {1}


def test_the_stages_play_every_word_of_a_script():
    text = (PACKAGE.parent / "stubs" / "stages.yaml").read_text()
    for word in ("ready", "unready", "flap", "end", "drain"):
        assert f"script.{word}" in text


@pytest.mark.parametrize(("level", "nodes", "most"), [("sim", 1001, 1000), ("node", 65, 64), ("sim", 0, 1000)])
def test_more_nodes_than_a_level_can_have_are_refused(level, nodes, most):
    with pytest.raises(TestbedError, match=f"--nodes {nodes}: level {level} has 1 to {most} nodes"):
        Cluster("demo", level, nodes)


def test_each_level_has_its_usual_number_of_nodes():
    assert [Cluster("demo", level).nodes for level in ("api", "sim", "node")] == [0, 3, 1]
