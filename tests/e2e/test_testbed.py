"""The testbed itself: a real node works, and the machine afterwards is the machine before."""

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed import Cluster, TestbedError
from testbed.binaries import golang, inventory
from testbed.host import record, snapshot
from testbed.host.cleaning import cgroups, left_over
from testbed.host.kernel import CGROUPS
from testbed.host.network import Addresses
from testbed.nodes.pause import architecture, docker_archive
from testbed.paths import PACKAGE, cache_root
from testbed.process import rss_bytes

pytestmark = pytest.mark.e2e

OURS = ("testbed-a", "testbed-b")
PARTS_OF_TWO_NODES = 13  # etcd … CoreDNS
KILLED_AFTER = [
    pytest.param(started, marks=() if started == 9 else pytest.mark.slow) for started in range(PARTS_OF_TWO_NODES)
]
"""`make test` kills an `up` amid its nodes, when the control plane is there; `make samples` after every part."""
IMAGE = "graphpod.dev/testbed-probe:1"
Eventually = Callable[..., Any]  # the fixture of tests/conftest.py
SAFE = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("probe")
    source = Path(__file__).with_name("probe.c")
    subprocess.run(["gcc", "-static", "-Os", "-o", folder / "probe", source], check=True, timeout=60)
    archive = folder / "probe.tar"
    archive.write_bytes(docker_archive((folder / "probe").read_bytes(), architecture(), IMAGE))
    return archive


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    yield from fresh(Cluster(OURS[0], nodes=1))


@pytest.fixture
def two_nodes() -> Iterator[Cluster]:
    yield from fresh(Cluster(OURS[0], nodes=2))


def fresh(cluster: Cluster) -> Iterator[Cluster]:
    cluster.down()
    yield cluster
    cluster.down()


def pod(name: str, node: str, *args: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "probe", "labels": {"app": "eater" if args else "writer"}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "fsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "probe",
                    "image": IMAGE,
                    "args": list(args),
                    "resources": {"limits": {"memory": "32Mi"}},
                    "securityContext": SAFE,
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }


def claim(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "probe"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec},
    }


def start_pods(cluster: Cluster, image: Path, eventually: Eventually) -> None:
    """Under pod security `restricted`: a writer on every node and their Service, an eater of memory on the first."""
    cluster.load(image)
    cluster.kubectl("create", "namespace", "probe")
    cluster.kubectl("label", "namespace", "probe", "pod-security.kubernetes.io/enforce=restricted")
    shared = {"storageClassName": "testbed-shared", "accessModes": ["ReadWriteMany"]} if cluster.nodes > 1 else {}
    writers = [pod(f"writer{n}", f"node{n}") for n in range(1, cluster.nodes + 1)]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "writer", "namespace": "probe"},
        "spec": {"selector": {"app": "writer"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    items = [claim(**shared), service, *writers, pod("eater", "node1", "eat")]
    eventually(lambda: "default" in cluster.kubectl("-n", "probe", "get", "sa", "-o", "name"))
    cluster.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    wait = ["wait", "pod", "-l", "app=writer", "--for=condition=Ready", "--timeout=60s"]
    cluster.kubectl("-n", "probe", *wait, timeout=70)


def served(cluster: Cluster) -> bool:
    """Does the writers' Service answer the host? It is refused until the proxies know its endpoints."""
    address = cluster.kubectl("-n", "probe", "get", "service", "writer", "-o", "jsonpath={.spec.clusterIP}")
    try:
        with socket.create_connection((address, 80), timeout=3) as s:
            return s.recv(16) == b"served\n"
    except (ConnectionError, TimeoutError):
        return False


def containers_of(cluster: Cluster, node: int) -> list[int]:
    """Process ids in the cgroups of a node, of every hierarchy."""
    files = CGROUPS.glob(f"**/graphpod-{cluster.name}.{node}/**/cgroup.procs")
    return sorted({int(pid) for file in files for pid in file.read_text().split()})


def process_of(cluster: Cluster, name: str) -> int:
    """Some process of a running pod: any is in the pod's network."""
    uid = cluster.kubectl("-n", "probe", "get", "pod", name, "-o", "jsonpath={.metadata.uid}")
    return next(int(pid) for file in CGROUPS.glob(f"**/pod{uid}/*/cgroup.procs") for pid in file.read_text().split())


def test_a_node_runs_restricted_pods_and_down_leaves_the_machine_as_it_was(
    cluster: Cluster, image: Path, eventually: Eventually
):
    before = snapshot.take(OURS)
    cluster.up()
    start_pods(cluster, image, eventually)

    # the volume of a claim without a class is writable through fsGroup, and logs come through the kubelet; without a
    # probe a pod is Ready before it has done anything
    eventually(lambda: cluster.kubectl("-n", "probe", "logs", "writer1") == "written\n")
    written = [v / "written" for v in (cluster.folder / "node1" / "volumes").iterdir() if (v / "written").exists()]
    assert [w.read_text() for w in written] == ["yes"]

    # the memory limit ends who eats more
    reason = "jsonpath={.status.containerStatuses[0].state.terminated.reason}"
    eventually(lambda: cluster.kubectl("-n", "probe", "get", "pod", "eater", "-o", reason) == "OOMKilled")

    # a pod resolves service names by the cluster's DNS service, and a service answers the host
    dns = Addresses(record.load(cluster.name).id).dns
    ask = f"from testbed.nodes.addons import resolves as r; print(r('{dns}', 'kubernetes.default.svc.cluster.local'))"
    inside = ["nsenter", f"--net=/proc/{process_of(cluster, 'writer1')}/ns/net", sys.executable, "-c", ask]
    eventually(lambda: subprocess.check_output(inside, cwd=PACKAGE.parent, text=True) == "True\n")
    eventually(lambda: served(cluster))

    # who may do nothing is refused, and the audit log has seen it
    mine = ["--kubeconfig", str(cluster.token_kubeconfig("user1"))]
    with pytest.raises(TestbedError, match="forbidden"):
        cluster.kubectl(*mine, "-n", "probe", "get", "pods")
    users = {json.loads(line)["user"]["username"] for line in cluster.audit_log.read_text().splitlines()}
    assert {"admin", "user1", "system:node:node1"} <= users

    cluster.down()
    assert snapshot.difference(before, snapshot.take(OURS)) == []
    assert not left_over(cluster.name)


def test_pods_on_two_nodes_share_a_volume_and_their_service_survives_the_death_of_node_1(
    two_nodes: Cluster, image: Path, eventually: Eventually
):
    two_nodes.up()
    start_pods(two_nodes, image, eventually)
    shared = two_nodes.folder / "shared"
    eventually(lambda: [f.read_text() for f in shared.glob("*/written")] == ["yesyes"])
    eventually(lambda: served(two_nodes))

    parts = [c for c in record.load(two_nodes.name).components if c.name.endswith("-node1")]
    assert len(parts) == 3
    for pid in [c.process.pid for c in parts]:
        os.kill(pid, signal.SIGKILL)
    for pid in containers_of(two_nodes, 1):
        with contextlib.suppress(ProcessLookupError):  # some end with those killed before them
            os.kill(pid, signal.SIGKILL)
    two_nodes.kubectl("-n", "probe", "delete", "pod", "writer1", "--force")  # nobody else says that it is gone

    assert "Ready" in two_nodes.kubectl("get", "node", "node2")
    eventually(lambda: [served(two_nodes) for _ in range(5)] == [True] * 5, timeout=15)


def test_up_on_a_running_testbed_changes_nothing_another_level_is_refused_and_no_image_is_loaded_again(
    cluster: Cluster, image: Path
):
    cluster.up()
    first, said = record.load(cluster.name), []
    Cluster(cluster.name).up(said.append)
    assert record.load(cluster.name) == first
    assert "already up" in said[-1]
    with pytest.raises(TestbedError, match="python3 -m testbed down --name testbed-a"):
        Cluster(cluster.name, "api").up()

    reported: list[str] = []
    cluster.load(image, reported.append)
    cluster.load(image, reported.append)
    assert ["already there" in line for line in reported] == [False, True]


def test_after_kill_9_of_every_part_down_cleans_two_nodes_and_the_neighbour_serves(
    two_nodes: Cluster, image: Path, eventually: Eventually
):
    before = snapshot.take(OURS)
    neighbour = Cluster(OURS[1], nodes=1)
    neighbour.up()
    try:
        start_pods(neighbour, image, eventually)
        two_nodes.up()
        start_pods(two_nodes, image, eventually)
        hierarchies = {group.parent for group in cgroups(two_nodes.name)}
        assert hierarchies == {group.parent for group in cgroups(neighbour.name)}
        for component in record.load(two_nodes.name).components:
            os.kill(component.process.pid, signal.SIGKILL)
        assert all(containers_of(two_nodes, n) for n in (1, 2)), (
            "they outlive their kubelet: that is what down must find"
        )

        two_nodes.down()

        assert [containers_of(two_nodes, n) for n in (1, 2)] == [[], []]
        assert list(cgroups(two_nodes.name)) == []
        assert not left_over(two_nodes.name)
        assert not neighbour.dead()
        assert "Ready" in neighbour.kubectl("get", "nodes")
        assert served(neighbour)
        assert Path("/proc/sys/kernel/panic").read_text().strip() == "10", "the neighbour's kubelet still needs it"
    finally:
        neighbour.down()
    assert snapshot.difference(before, snapshot.take(OURS)) == []


@pytest.mark.parametrize("started", KILLED_AFTER)
def test_an_up_killed_after_any_of_its_components_leaves_nothing_that_down_does_not_find(
    two_nodes: Cluster, eventually: Eventually, started: int
):
    before = snapshot.take(OURS)
    argv = [sys.executable, "-m", "testbed", "up", "--name", two_nodes.name, "--nodes", "2"]
    half = subprocess.Popen(argv, cwd=PACKAGE.parent, stdout=subprocess.DEVNULL)
    eventually(lambda: (found := record.load(two_nodes.name)) and len(found.components) >= started, every=0.01)
    half.kill()
    half.wait()
    assert not record.load(two_nodes.name).ready

    two_nodes.down()

    assert not left_over(two_nodes.name)
    assert snapshot.difference(before, snapshot.take(OURS)) == []


def test_a_command_killed_half_way_and_a_dead_component_are_mended_by_the_next_up(
    cluster: Cluster, eventually: Eventually
):
    half = subprocess.Popen([sys.executable, "-m", "testbed", "up", "--name", cluster.name], cwd=PACKAGE.parent)
    eventually(lambda: (found := record.load(cluster.name)) and len(found.components) >= 3)
    half.kill()
    half.wait()
    assert not record.load(cluster.name).ready

    cluster.up()
    kubelet = next(c for c in record.load(cluster.name).components if c.name == "kubelet-node1")
    assert rss_bytes(kubelet.process) > 0
    os.kill(kubelet.process.pid, signal.SIGKILL)
    eventually(lambda: [c.name for c in cluster.dead()] == ["kubelet-node1"])

    said: list[str] = []
    cluster.up(said.append)
    assert any("dead: kubelet-node1" in line for line in said)
    assert not cluster.dead()


def test_the_binaries_in_the_cache_are_what_they_say_and_a_warm_build_does_not_touch_them():
    def state() -> str:
        files = sorted(p for p in (cache_root() / "bin").rglob("*") if p.is_file())
        return hashlib.sha256("".join(f"{p} {p.stat().st_mtime_ns}" for p in files).encode()).hexdigest()

    def build() -> str:
        argv = [sys.executable, "-m", "testbed", "build"]
        return subprocess.run(argv, cwd=PACKAGE.parent, capture_output=True, text=True, check=True, timeout=900).stdout

    assert "binaries ready" in build()
    before = state()
    assert "building" not in build()
    assert state() == before

    tools = [golang.BY_NAME[name] for name in golang.NODE_TOOLS]
    assert {f.state for f in inventory.look(tools, golang.go_version())} == {inventory.State.RIGHT}
