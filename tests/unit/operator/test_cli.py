"""Every flag of `graphpod operator run` reaches its setting, and a signal ends it from the beginning."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphpod_operator import cli
from graphpod_operator.handlers.kopf_operator import NOTHING, Liveness
from graphpod_operator.install.engine_images import Images
from graphpod_operator.install.network_access import Access
from graphpod_operator.manager import run as running
from graphpod_operator.telemetry import logs


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[running.Settings]]:
    """The settings of every operator that was started; none runs."""
    seen: list[running.Settings] = []

    async def run(settings: running.Settings) -> None:
        seen.append(settings)

    monkeypatch.setattr(running, "run", run)
    monkeypatch.setattr(logs, "configure", lambda *how: None)
    before = signal.getsignal(signal.SIGTERM)
    yield seen
    signal.signal(signal.SIGTERM, before)


def test_each_flag_is_its_setting(
    started: list[running.Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_IP", "10.1.2.3")
    flags = {
        "engine-image": "images.example/engine:cpu",
        "engine-gpu-image": "images.example/engine:gpu",
        "lease-namespace": "leases",
        "port": "8181",
        "workers": "3",
        "admin-url": "http://proxy/{namespace}/{name}",
        "prometheus-url": "http://prometheus:9090",
        "liveness-port": "8182",
        "webhook-port": "9444",
        "webhook-certificates": str(tmp_path),
        "without-kind": "HTTPRoute",
        "pod-monitor-labels": '{"release": "stack"}',
    }
    names = ["--namespace=blue", "--namespace=green", "--no-fixed-user"]
    assert cli.main(["operator", "run", *(f"--{flag}={value}" for flag, value in flags.items()), *names]) == 0
    (settings,) = started
    assert settings.installed.images == Images(cpu="images.example/engine:cpu", gpu="images.example/engine:gpu")
    assert (settings.lease_namespace, settings.namespaces) == ("leases", ("blue", "green"))
    assert (settings.port, settings.workers) == (8181, 3)
    assert (settings.admin_url, settings.installed.prometheus) == (
        "http://proxy/{namespace}/{name}",
        "http://prometheus:9090",
    )
    assert settings.serving.webhook is not None
    assert (settings.serving.webhook.port, settings.serving.webhook.certificate.folder) == (9444, tmp_path)
    assert settings.serving.webhook.allowed is settings.installed.allowed
    assert settings.serving.liveness == Liveness("10.1.2.3", 8182)
    assert [kind.kind for kind in settings.without] == ["HTTPRoute"]
    assert not settings.installed.fixed_user
    assert settings.installed.monitor_labels == {"release": "stack"}


@pytest.mark.parametrize(
    "text", ["release=stack", '["release"]', '{"release": 1}', '{"graphpod.dev/x": "y"}', '{"a": "no label value!"}']
)
def test_labels_that_no_pod_monitor_can_have_are_refused_at_the_start(
    started: list[running.Settings], capsys: pytest.CaptureFixture[str], text: str
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["operator", "run", f"--pod-monitor-labels={text}"])
    assert "expected labels as JSON" in capsys.readouterr().err
    assert started == []


def test_network_policies_are_asked_for_by_who_may_connect(
    started: list[running.Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    peer = '{"podSelector": {"matchLabels": {"app": "prometheus"}}}'
    assert cli.main(["operator", "run", f'--network-policy={{"admin": [{peer}]}}']) == 0
    (settings,) = started
    assert settings.installed.access == Access(admin=({"podSelector": {"matchLabels": {"app": "prometheus"}}},))
    with pytest.raises(SystemExit):
        cli.main(["operator", "run", '--network-policy={"amdin": []}'])
    assert "amdin" in capsys.readouterr().err


def test_without_flags_it_serves_all_namespaces_with_its_own_images(
    started: list[running.Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_UID", "11-22")
    assert cli.main(["operator", "run"]) == 0
    (settings,) = started
    assert settings.installed.images == cli.DEFAULT_IMAGES
    assert (settings.namespaces, settings.identity, settings.serving, settings.installed.access) == (
        (),
        "11-22",
        NOTHING,
        None,
    )
    assert settings.installed.fixed_user


def test_a_signal_that_comes_before_the_event_loop_ends_the_operator() -> None:
    """As process 1 it would be lost, and the pod wait for its SIGKILL."""
    signalled = "logs.configure = lambda *_: signal.raise_signal(signal.SIGTERM)"
    program = (
        f"import signal; from graphpod_operator import cli; from graphpod_operator.telemetry import logs; {signalled}"
    )
    ended = subprocess.run(
        [sys.executable, "-c", f"{program}; cli.main(['operator', 'run'])"], check=False, timeout=120
    )
    assert ended.returncode == 0


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_closes_the_pipe_ends_a_command_without_a_traceback(unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-c", "import sys; from graphpod_operator.cli import main; sys.exit(main(['rules']))"],
            stdout=writer,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            check=False,
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (cli.PIPE_CLOSED, b"")


def test_without_a_command_all_of_them_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "    explain " in capsys.readouterr().err
