"""The testbed itself: a real node works, and the machine afterwards is the machine before."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed import Cluster, TestbedError, record, snapshot
from testbed.cleaning import left_over
from testbed.network import Addresses
from testbed.paths import PACKAGE, cache_root
from testbed.pause import architecture, docker_archive
from testbed.process import rss_bytes

pytestmark = pytest.mark.e2e

OURS = ("testbed-a", "testbed-b")
IMAGE = "graphpod.dev/testbed-probe:1"
Eventually = Callable[..., Any]  # the fixture of tests/conftest.py
SAFE = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def machine() -> snapshot.Machine:
    return snapshot.take(OURS)


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
    cluster = Cluster(OURS[0])
    cluster.down()
    yield cluster
    cluster.down()


def pod(name: str, *args: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "probe"},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
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


def start_pods(cluster: Cluster, image: Path, eventually: Eventually) -> None:
    cluster.load(image)
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "probe"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    cluster.kubectl("create", "namespace", "probe")
    cluster.kubectl("label", "namespace", "probe", "pod-security.kubernetes.io/enforce=restricted")
    items = {"apiVersion": "v1", "kind": "List", "items": [claim, pod("writer"), pod("hog", "eat")]}
    eventually(lambda: "default" in cluster.kubectl("-n", "probe", "get", "sa", "-o", "name"))
    cluster.kubectl("apply", "-f", "-", input=json.dumps(items))
    cluster.kubectl("-n", "probe", "wait", "pod/writer", "--for=condition=Ready", "--timeout=60s", timeout=70)


def containers_of(cluster: Cluster) -> list[int]:
    files = Path("/sys/fs/cgroup").glob(f"**/graphpod-{cluster.name}.*/**/cgroup.procs")
    return sorted({int(pid) for file in files for pid in file.read_text().split()})


def test_a_node_runs_restricted_pods_and_down_leaves_the_machine_as_it_was(
    cluster: Cluster, image: Path, eventually: Eventually
):
    before = machine()
    cluster.up()
    start_pods(cluster, image, eventually)

    # the volume of a claim without a class is writable through fsGroup, and logs come through the kubelet
    assert cluster.kubectl("-n", "probe", "logs", "writer") == "written\n"
    written = [v / "written" for v in (cluster.folder / "node1" / "volumes").iterdir() if (v / "written").exists()]
    assert [w.read_text() for w in written] == ["yes"]

    # the memory limit ends who eats more
    reason = "jsonpath={.status.containerStatuses[0].state.terminated.reason}"
    eventually(lambda: cluster.kubectl("-n", "probe", "get", "pod", "hog", "-o", reason) == "OOMKilled")

    # a pod resolves service names by the cluster's DNS service
    dns = Addresses(record.load(cluster.name).id).dns
    ask = f"from testbed.addons import resolves as r; print(r('{dns}', 'kubernetes.default.svc.cluster.local'))"
    inside = ["nsenter", f"--net=/proc/{containers_of(cluster)[0]}/ns/net", sys.executable, "-c", ask]
    eventually(lambda: subprocess.check_output(inside, cwd=PACKAGE.parent, text=True) == "True\n")

    # who may do nothing is refused, and the audit log has seen it
    mine = ["--kubeconfig", str(cluster.token_kubeconfig("user1"))]
    with pytest.raises(TestbedError, match="forbidden"):
        cluster.kubectl(*mine, "-n", "probe", "get", "pods")
    users = {json.loads(line)["user"]["username"] for line in cluster.audit_log.read_text().splitlines()}
    assert {"admin", "user1", "system:node:node1"} <= users

    cluster.down()
    assert machine() == before
    assert not left_over(cluster.name)


def test_an_image_that_is_there_is_not_loaded_again(cluster: Cluster, image: Path):
    cluster.up()
    said: list[str] = []
    cluster.load(image, said.append)
    cluster.load(image, said.append)
    assert ["already there" in line for line in said] == [False, True]


def test_up_on_a_running_testbed_changes_nothing_and_another_level_is_refused(cluster: Cluster):
    cluster.up()
    first, said = record.load(cluster.name), []
    Cluster(cluster.name).up(said.append)
    assert record.load(cluster.name) == first
    assert "already up" in said[-1]
    with pytest.raises(TestbedError, match="python -m testbed down --name testbed-a"):
        Cluster(cluster.name, "api").up()


def test_after_kill_9_of_everything_down_cleans_and_the_neighbour_serves(
    cluster: Cluster, image: Path, eventually: Eventually
):
    before = machine()
    neighbour = Cluster(OURS[1])
    neighbour.up()
    try:
        cluster.up()
        start_pods(cluster, image, eventually)
        for component in record.load(cluster.name).components:
            os.kill(component.process.pid, signal.SIGKILL)
        assert containers_of(cluster), "the containers outlive their kubelet: that is what down must find"

        cluster.down()

        assert containers_of(cluster) == []
        assert not left_over(cluster.name)
        assert not neighbour.dead()
        assert "Ready" in neighbour.kubectl("get", "nodes")
        assert Path("/proc/sys/kernel/panic").read_text().strip() == "10", "the neighbour's kubelet still needs it"
    finally:
        neighbour.down()
    assert machine() == before


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


def test_the_binaries_in_the_cache_are_not_touched_by_a_warm_build(cluster: Cluster):
    def state() -> str:
        files = sorted(p for p in (cache_root() / "bin").rglob("*") if p.is_file())
        return hashlib.sha256("".join(f"{p} {p.stat().st_mtime_ns}" for p in files).encode()).hexdigest()

    before = state()
    argv = [sys.executable, "-m", "testbed", "build"]
    answer = subprocess.run(argv, cwd=PACKAGE.parent, capture_output=True, text=True, check=True, timeout=600)
    assert "binaries ready" in answer.stdout
    assert state() == before
