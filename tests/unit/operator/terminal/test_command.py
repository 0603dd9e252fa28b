"""The command lines: arguments, exit codes, and pods that are read together."""

import asyncio
from pathlib import Path

import pytest

from graphpod_operator import cli
from graphpod_operator.cache.pod import Pod
from graphpod_operator.kube.connection import Connection
from graphpod_operator.kube.port_forward import NoAnswer
from graphpod_operator.terminal.sources import admin_ports
from graphpod_operator.terminal.sources.admin_ports import AdminPorts
from tests.unit.operator.objects import pod


@pytest.fixture
def no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kubeconfig").write_text("apiVersion: v1\nkind: Config\n")
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))


@pytest.mark.usefixtures("no_cluster")
@pytest.mark.parametrize(
    "words",
    [
        *(["top", "--once"], ["top", "-o", "json"], ["why", "demo"], ["why", "gisvc/demo", "-n", "ns"]),
        *(["why", kind + "/demo"] for kind in ("inferenceservice", "inferenceservices.graphpod.dev")),
    ],
)
def test_without_a_cluster_the_error_says_what_to_set(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: no cluster to ask: ")
    assert said.endswith("; set KUBECONFIG\n")


@pytest.mark.parametrize("what", ["pod/demo", "/demo", "gisvc/", "gisvc/a/b", "", "Demo", "demo.yaml", "a" * 41])
@pytest.mark.parametrize("command", ["why", "advise"])
def test_what_names_no_service_is_refused_before_a_cluster_is_read(
    command: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([command, what]) == 2
    assert capsys.readouterr().err == f"error: {what}: expected NAME or gisvc/NAME of a live service\n"


@pytest.mark.parametrize("seconds", ["0", "0.5", "nan", "inf", "-1", "soon", "1e9"])
def test_an_interval_is_from_a_second_to_an_hour(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["top", f"--interval={seconds}"])
    assert ended.value.code == 2
    assert "expected seconds from 1 to 3600" in capsys.readouterr().err


def test_kubectl_calls_the_program_by_its_other_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["/somewhere/kubectl-graphpod"])
    with pytest.raises(SystemExit):
        cli.main(["why", "--help"])
    assert capsys.readouterr().out.startswith("usage: kubectl graphpod why ")


async def test_pods_that_hang_are_read_last_and_hold_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def get(
        wire: Connection, namespace: str, name: str, port: int, path: str, most: int, seconds: float
    ) -> bytes:
        asked.append(name)
        if name.startswith("hung"):
            await asyncio.sleep(seconds)
            raise NoAnswer("no answer")
        return b"body"

    for setting, value in (("SECONDS", 0.05), ("CONCURRENCY", 1), ("PODS", 3)):
        monkeypatch.setattr(admin_ports, setting, value)
    monkeypatch.setattr(admin_ports, "get", get)
    pods = [Pod.of(pod(name=name)) for name in ("hung-1", "well-1", "well-2", "well-3")]
    ports = AdminPorts(wire=None)  # type: ignore[arg-type]
    first = await ports.read(pods, "/metrics", 10)
    assert {uid: answer.body.decode() or answer.trouble for uid, answer in first.items()} == {
        "uid-hung-1": "no answer",
        "uid-well-1": "body",
        "uid-well-2": "body",
        "uid-well-3": "not read: only 3 pods are",
    }
    asked.clear()
    await ports.read(pods[:3], "/metrics", 10)
    assert asked == ["well-1", "well-2", "hung-1"]
    monkeypatch.setattr(admin_ports, "ALL_SECONDS", 0.01)
    late = await ports.read(pods[:1], "/metrics", 10)
    assert late["uid-hung-1"].trouble == "not read: others took too long"
