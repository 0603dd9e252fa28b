"""`graphpod top` and `graphpod why` against the real API server, by a user with the documented role only; the pods
answer through a real `pods/portforward`, whose kubelet is a stub.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.host import record
from tests.api.operator.explained import GRAPHPOD
from tests.api.operator.kubelet import NODE, Kubelet
from tests.api.operator.pods import AdminPorts, report, running, set_status
from tests.audit import Audit
from tests.eventually import Eventually
from tests.places import Place
from tests.unit.house.pages import DOCS, Page
from tests.unit.operator.terminal.expositions import exposition, http

USER, WATCHER = "reader", "watcher"
"""ServiceAccounts: one with the documented role; one that may read the same, and no pod's port."""

Run = Callable[..., subprocess.CompletedProcess[str]]


def documented() -> dict[str, Any]:
    """The role on the page."""
    roles = (
        yaml.safe_load(block.text) for block in Page(DOCS / "how-to/terminal.md").blocks if block.language == "yaml"
    )
    return next(role for role in roles if role["kind"] == "ClusterRole")


def bind(place: Place, user: str, rules: list[dict[str, Any]]) -> None:
    name, group = f"terminal-{user}", "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": user, "namespace": place.namespace}],
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": user}}
    place.kubectl("apply", "-f", "-", input=yaml.safe_dump_all([account, role, binding]))


def kubeconfig_of(place: Place, user: str, folder: Path) -> Path:
    """A kubeconfig of a ServiceAccount, that says nothing of a namespace."""
    found = folder / f"{user}.kubeconfig"
    admin = yaml.safe_load(place.cluster.kubeconfig.read_text())
    admin["users"][0]["user"] = {"token": place.kubectl("create", "token", user).strip()}
    found.write_text(yaml.safe_dump(admin))
    return found


def audited(place: Place) -> str:
    """The user's name in the audit log."""
    return f"system:serviceaccount:{place.namespace}:{USER}"


@pytest.fixture
def graphpod(place: Place, tmp_path: Path) -> Run:
    """The command as one of the users."""
    rules = documented()["rules"]
    bind(place, USER, rules)
    bind(place, WATCHER, [rule for rule in rules if rule["resources"] != ["pods/portforward"]])

    files = {user: kubeconfig_of(place, user, tmp_path) for user in (USER, WATCHER)}

    def run(*words: str, user: str = USER) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "KUBECONFIG": str(files[user])}
        command = [GRAPHPOD, *words, "-n", place.namespace]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.fixture
def kubelet(place: Place, tmp_path: Path) -> Iterator[Kubelet]:
    found = record.load(place.cluster.name)
    assert found is not None
    with Kubelet(place.cluster, tmp_path).serving(found.addresses.host) as kubelet:
        yield kubelet


@pytest.fixture
def pod(applied: Place, kubelet: Kubelet, admin_ports: AdminPorts, eventually: Eventually) -> dict[str, Any]:
    """The pod of service `demo`, which is Ready and runs on the stub's node."""
    (found,) = applied.pods()
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": found["metadata"]["name"]},
        "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
    }
    path = f"/api/v1/namespaces/{applied.namespace}/pods/{found['metadata']['name']}/binding"
    applied.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(binding))
    admin_ports.tell(found, report(found))
    set_status(applied.cluster, found, running(ready=True))
    eventually(applied.reached("Ready", "True", "Ready"))
    return found


def test_top_shows_what_a_pod_does_through_a_port_forward(
    applied: Place, pod: dict[str, Any], kubelet: Kubelet, graphpod: Run, audit: Audit
) -> None:
    mark = audit.mark()
    kubelet.answers[pod["metadata"]["name"]] = http(exposition(running=3, kv=0.25))
    done = graphpod("top", "-o", "json", "--interval", "1")
    assert (done.returncode, done.stderr) == (0, "")
    (row,) = json.loads(done.stdout)["services"]
    assert (row["name"], row["phase"], row["captured"], row["pods"]) == ("demo", "Ready", "26/26", "1/1")
    assert row["prefill"] == {"planned": "Breakable", "effective": "Breakable"}
    assert (row["load"]["running"], row["load"]["kvUsageRatio"]) == (3, 0.25)
    assert row["load"]["replaysPerSecond"] == {"prefill": 0, "decode": 0}
    assert (row["troubles"], row["podsAsked"]) == ([], 1)
    assert [request.split(b"\r\n")[0] for request in kubelet.requests] == [b"GET /metrics HTTP/1.1"] * 2
    assert audit.since(mark).by(audited(applied)).forbidden() == ()
    text = graphpod("top", "--interval", "1").stdout.splitlines()
    assert text[0].split()[:5] == ["NAME", "STATUS", "PREFILL", "DECODE", "CAPTURED"]
    assert text[1].split()[:5] == ["demo", "Ready", "Breakable", "Full", "26/26"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "no answer within 4 s"),
        (b"", "nothing listens on port 8001"),
        (http(b"x" * (2 << 20)), "/metrics has more than 1024 KiB"),
        (http(b"<html>"), "/metrics has no series of a graphpod engine"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "/metrics: what answered is no HTTP server: SSH-2.0-OpenSSH_9.2"),
    ],
    ids=["hangs", "closed", "huge", "other", "no http"],
)
def test_a_pod_that_gives_no_metrics_leaves_its_reason_in_the_table(
    applied: Place, pod: dict[str, Any], kubelet: Kubelet, graphpod: Run, answer: bytes | None, said: str
) -> None:
    name = pod["metadata"]["name"]
    kubelet.answers[name] = answer
    done = graphpod("top", "--interval", "1")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[1].split()[:2] == ["demo", "Ready"]
    assert lines[1].endswith("1 unread")
    assert lines[-1] == f"demo: pod {name}: {said}"


def test_without_the_right_to_port_forward_the_rest_is_there(
    applied: Place, pod: dict[str, Any], kubelet: Kubelet, graphpod: Run
) -> None:
    denied = "you may not port-forward to it (needs get and create of pods/portforward)"
    done = graphpod("top", "-o", "json", "--interval", "1", user=WATCHER)
    (row,) = json.loads(done.stdout)["services"]
    assert row["captured"] == "26/26"
    assert row["troubles"] == [f"pod {pod['metadata']['name']}: {denied}"]
    done = graphpod("why", "gisvc/demo", user=WATCHER)
    assert done.returncode == 0
    assert denied in done.stdout


def test_why_shows_the_verdict_first_and_the_pods_warm_up(
    applied: Place, pod: dict[str, Any], kubelet: Kubelet, graphpod: Run, audit: Audit
) -> None:
    mark = audit.mark()
    stages = [{"name": "Import", "seconds": 1.25}, {"name": "Load", "seconds": 12.0}]
    warm = report(pod, stages=stages)
    kubelet.answers[pod["metadata"]["name"]] = http(json.dumps(warm).encode())
    done = graphpod("why", "gisvc/demo")
    assert (done.returncode, done.stderr) == (0, "")
    first, *rest = done.stdout.splitlines()
    assert first == (
        f"{applied.namespace}/demo is Ready: 1/1 pods serve; prefill Breakable, decode Full; 26/26 captured"
    )
    assert "    warm-up  Ready, 26/26 captured (prefill Breakable, decode Full)" in rest
    assert "    stages   Import 1.2 s, Load 12 s" in rest
    assert any(line.startswith("  · NoCuda (prefill, decode: ") for line in rest)
    assert audit.since(mark).by(audited(applied)).forbidden() == ()


def test_why_a_service_waits_has_a_command_that_the_cluster_understands(applied: Place, graphpod: Run) -> None:
    done = graphpod("why", "gisvc/demo", "-o", "json")
    assert done.returncode == 4
    found = json.loads(done.stdout)
    assert found["reason"] == applied.condition("Ready")[1]
    assert found["nextStep"]["command"].startswith(f"kubectl -n {applied.namespace} wait gisvc/demo ")
    assert [pod["name"] for pod in found["pods"]] == [pod["metadata"]["name"] for pod in applied.pods()]


def test_a_service_that_is_not_there_and_a_namespace_without_rights_are_errors(place: Place, graphpod: Run) -> None:
    done = graphpod("why", "gisvc/nobody")
    assert done.returncode == 2
    assert done.stderr.startswith("error: gisvc/nobody does not exist in namespace ")
    done = graphpod("top", "-A", "--once")
    assert done.returncode == 2
    assert "cannot list resource" in done.stderr
