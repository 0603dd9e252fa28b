"""The operator as a process of its own, under a user that has exactly the operator's rules."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import yaml

import graphpod_operator
from testbed import Cluster

USER = "operator"
RULES = Path(graphpod_operator.__file__).with_name("rbac.yaml")
IMAGE = "graphpod.dev/runtime:test"
STOP_SECONDS = 30


def grant(cluster: Cluster, user: str = USER, namespace: str | None = None) -> None:
    """Bind a user to the operator's rules, in one namespace or (None) in the whole cluster."""
    group = "rbac.authorization.k8s.io"
    kind = "Role" if namespace else "ClusterRole"
    name = "graphpod-operator-under-test"
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    rules = yaml.safe_load(RULES.read_text())
    role = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": kind, "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all([role, binding]))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Operator:
    """One operator process; `log` keeps what every run of it said. `kubeconfig`: another than the static user's;
    `arguments`: of its command line, besides."""

    cluster: Cluster
    admin_url: str
    log: Path
    user: str = USER
    namespaces: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    kubeconfig: Path | None = None
    arguments: tuple[str, ...] = ()

    def start(self) -> None:
        executable = Path(sys.executable).with_name("graphpod")
        arguments = [
            "operator",
            "run",
            "--engine-image",
            IMAGE,
            "--port",
            str(self.port),
            "--admin-url",
            self.admin_url,
        ]
        arguments += [f"--namespace={namespace}" for namespace in self.namespaces] + list(self.arguments)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [executable, *arguments],
                stdout=log,
                stderr=log,
                env={**os.environ, "KUBECONFIG": str(self.kubeconfig or self.cluster.token_kubeconfig(self.user))},
            )

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL: no last word."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def ask(self, path: str) -> tuple[int, str]:
        """Status and body of a GET on the operator's own port; status 0 while nothing listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def metric(self, series: str) -> float:
        """The value of one series, 0 when it is not there."""
        for line in self.ask("/metrics")[1].splitlines():
            if line.startswith(series + " "):
                return float(line.rpartition(" ")[2])
        return 0.0

    def idle(self) -> bool:
        """Whether no key waits and none is worked on."""
        name = 'name="inferenceservice"'
        controller = 'controller="inferenceservice"'
        return (
            self.ask("/readyz")[0] == 200
            and self.metric(f"workqueue_depth{{{name}}}") == 0
            and self.metric(f"controller_runtime_active_workers{{{controller}}}") == 0
        )

    def tail(self) -> str:
        """The log's last lines, as evidence."""
        return "\n".join(["--- operator's log", *self.log.read_text().splitlines()[-60:]])
