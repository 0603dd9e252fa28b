"""The demo and a cluster that is not its own: what it asks of the API server, told by the audit log.

The reader is a static user of the API server, so that every request in the demo's name can be counted.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo.current import preflight
from demo.current.cluster import CurrentContext
from demo.current.kubeconfig import current
from demo.current.preflight import Right
from testbed import Cluster, TestbedError
from testbed.binaries.golang import build
from tests.audit import Audit
from tests.eventually import Eventually

READER, SOMEBODY = "user3", "user4"
IMAGES = "--images=registry.example/graphpod"


@dataclass(frozen=True)
class Machine:
    """A reader's machine: a kubeconfig, and programs on PATH that note when they are called."""

    folder: Path
    kubeconfig: Path

    def demo(self, *args: str, typed: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """`python3 -m demo …` as make calls it, without a terminal."""
        return subprocess.run(
            [sys.executable, "-m", "demo", *args],
            input=typed,
            capture_output=True,
            text=True,
            timeout=120,
            env=self.environment() | environment,
        )

    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if key not in ("KUBECONFIG", "HOME")}
        path = f"{self.folder}:{os.environ['PATH']}"
        return kept | {"KUBECONFIG": str(self.kubeconfig), "HOME": str(self.folder), "PATH": path}

    def called(self) -> str:
        """What was called, if anything was."""
        notes = self.folder / "called"
        return notes.read_text() if notes.exists() else ""


@pytest.fixture
def machine(api_cluster: Cluster, tmp_path: Path) -> Machine:
    """Two contexts, `theirs` (the current one) and `other`, which are two users of one API server."""
    contents = [json.loads(api_cluster.token_kubeconfig(user).read_text()) for user in (READER, SOMEBODY)]
    merged = {"apiVersion": "v1", "kind": "Config", "current-context": "theirs"}
    merged |= {"clusters": [{"name": "c", "cluster": contents[0]["clusters"][0]["cluster"]}]}
    users = zip((READER, SOMEBODY), contents, strict=True)
    merged["users"] = [{"name": name, "user": content["users"][0]["user"]} for name, content in users]
    names = zip(("theirs", "other"), (READER, SOMEBODY), strict=True)
    merged["contexts"] = [{"name": name, "context": {"cluster": "c", "user": user}} for name, user in names]
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(json.dumps(merged))
    tools = build(["kubectl", "helm4"])
    for name, tool in (("kubectl", tools["kubectl"]), ("helm", tools["helm4"])):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/called\nexec {tool} "$@"\n')
        program.chmod(0o755)
    return Machine(tmp_path, kubeconfig)


@pytest.fixture
def requests(api_cluster: Cluster) -> Callable[[], object]:
    """Requests by either of the two users since the test began."""
    audit = Audit(api_cluster.audit_log)
    mark = audit.mark()
    return lambda: audit.since(mark).by(READER, SOMEBODY)


UP, DOWN = ("up", "--cluster=current", IMAGES), ("down", "--cluster=current")


@pytest.mark.parametrize("verb", [UP, DOWN], ids=["up", "down"])
@pytest.mark.parametrize(
    ("more", "typed", "words"),
    [
        ((), "theirs\n", "is not confirmed"),
        (("--confirm=other",), "", "CONFIRM is 'other', but the current context is 'theirs'"),
        (("--confirm=",), "theirs\n", "CONFIRM is ''"),
    ],
    ids=["nobody there", "another name", "no name"],
)
def test_a_cluster_that_was_not_named_gets_not_one_request(
    machine: Machine, requests: Callable, verb: tuple[str, ...], more: tuple[str, ...], typed: str, words: str
) -> None:
    done = machine.demo(*verb, *more, typed=typed)
    assert done.returncode == 1
    assert words in done.stderr
    assert "nothing was sent to it" in done.stderr
    assert requests() == ()
    assert machine.called() == "", "kubectl itself might ask the server for its version"


def test_a_person_who_types_another_name_sends_nothing(machine: Machine, requests: Callable) -> None:
    """At a terminal, which `script` stands in for."""
    command = f"{sys.executable} -m demo up --cluster=current {IMAGES}"
    done = subprocess.run(
        ["script", "--quiet", "--return", "--command", command, "/dev/null"],
        input="other\n",
        capture_output=True,
        text=True,
        timeout=60,
        env=machine.environment(),
    )
    assert "Type the context's name to go on:" in done.stdout
    assert "you typed 'other', but the current context is 'theirs'" in done.stdout
    assert done.returncode == 1
    assert requests() == ()
    assert machine.called() == ""


def test_without_a_kubeconfig_no_cluster_is_found_somewhere_else(
    machine: Machine, api_cluster: Cluster, requests: Callable
) -> None:
    """Not the cluster whose pod this might be, either."""
    host = api_cluster.address.removeprefix("https://").partition(":")[0]
    inside = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "6443"}
    done = machine.demo(*UP, "--confirm=theirs", KUBECONFIG="", **inside)
    assert "KUBECONFIG is not set" in done.stderr
    assert requests() == ()
    assert machine.called() == ""


def test_once_named_it_stays_with_that_context_whatever_changes_around_it(
    machine: Machine, requests: Callable, monkeypatch: pytest.MonkeyPatch, api_cluster: Cluster
) -> None:
    for key in ("KUBECONFIG", "PATH"):
        monkeypatch.setenv(key, machine.environment()[key])
    monkeypatch.setenv("HELM_KUBECONTEXT", "other")
    monkeypatch.setenv("HELM_KUBEAPISERVER", "https://127.0.0.1:9")
    ground = CurrentContext(current(os.environ))
    machine.kubeconfig.write_text(
        machine.kubeconfig.read_text().replace('"current-context": "theirs"', '"current-context": "other"')
    )
    assert current(os.environ).name == "other"
    who = ground.kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    assert who == READER
    with pytest.raises(TestbedError, match=f'User "{READER}" cannot list resource "secrets"'):
        ground.helm("list", "--namespace", "default")
    assert {request.user for request in requests()} == {READER}


def test_missing_rights_are_told_before_anything_is_written(machine: Machine, requests: Callable) -> None:
    done = machine.demo(*UP, "--confirm=theirs")
    assert done.returncode == 1
    assert "kubectl auth can-i create customresourcedefinitions.apiextensions.k8s.io" in done.stderr
    assert requests().writes() == ()
    assert len(requests()) > 0, "it was named, so it was asked"


def test_rights_are_judged_as_kubectl_judges_them(
    machine: Machine, api_cluster: Cluster, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    for key in ("KUBECONFIG", "PATH"):
        monkeypatch.setenv(key, machine.environment()[key])
    kubectl = api_cluster.kubectl
    kubectl("create", "role", "demo-reader", "-n", "default", "--verb=get", "--resource=pods,pods/proxy")
    kubectl("create", "rolebinding", "demo-reader", "-n", "default", "--role=demo-reader", f"--user={READER}")
    rights = [
        Right("get", "", "pods", "default", ""),
        Right("get", "", "pods/proxy", "default", ""),
        Right("get", "", "pods/log", "default", ""),
        Right("create", "", "namespaces", "", ""),
    ]
    ground = CurrentContext(current(os.environ))
    wanted = list(zip(rights, (True, True, False, False), strict=True))
    # the server judges by rights that it has heard of, some time after they are stored
    eventually(lambda: preflight.allowed(ground, rights) == wanted)
    for right, yes in wanted:
        words = right.question.split()[1:]
        said = subprocess.run(
            [machine.folder / "kubectl", "--context=theirs", *words], capture_output=True, text=True, timeout=60
        )
        assert said.stdout.strip() == ("yes" if yes else "no"), right.question
    kubectl("delete", "role,rolebinding", "demo-reader", "-n", "default")


def test_a_cluster_without_nodes_and_storage_is_told_so_at_once(api_cluster: Cluster) -> None:
    with pytest.raises(TestbedError, match="cannot take the demo") as told:
        preflight.check(api_cluster, "")
    assert "no node is Ready" in str(told.value)
    assert "no StorageClass is the default" in str(told.value)
