"""A release of the chart as its admin sees it, and its operator as a process with nothing but the chart's rights."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed import Cluster
from testbed.control.api import NotThere
from tests.api.operator.process import Operator
from tests.crd import CRDS, wait_served
from tests.eventually import Eventually

CHART = Path("charts/graphpod")
DEPLOYMENT = "graphpod-operator"
CRD = "inferenceservices.graphpod.dev"
PASSED_ON = ("--network-policy=", "--without-kind=", "--prometheus-url=", "--allowed=", "--no-fixed-user")
"""Of the container's arguments, those that a process outside a cluster takes as they are."""
NOWHERE = "http://127.0.0.1:9/{namespace}/{name}"  # no container runs here, so no admin port is ever read


@dataclass(frozen=True)
class Release:
    """One release by one helm, installed or not; `user` is who runs helm, the cluster's admin or a static user."""

    helm: Path
    cluster: Cluster
    name: str = "graphpod"
    namespace: str = "graphpod-system"
    user: str = "admin"

    @property
    def account(self) -> str:
        """The user behind the operator's token."""
        return f"system:serviceaccount:{self.namespace}:{DEPLOYMENT}"

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = [self.helm, *args, "--namespace", self.namespace]
        environment = self.cluster.environment() | {"KUBECONFIG": str(self._kubeconfig_of_user())}
        return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)

    def install(self, *settings: str) -> str:
        """Install or upgrade; what helm printed, NOTES included."""
        done = self._upgrade(*settings)
        assert done.returncode == 0, done.stderr
        wait_served(self.cluster)
        return done.stdout

    def refused(self, *settings: str) -> str:
        """The words with which an install is refused."""
        done = self._upgrade(*settings)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def rollback(self, revision: int) -> None:
        done = self.run("rollback", self.name, str(revision))
        assert done.returncode == 0, done.stderr

    def uninstall(self) -> None:
        done = self.run("uninstall", self.name, "--ignore-not-found", "--wait")
        assert done.returncode == 0, done.stderr

    def crd_is_gone(self) -> bool:
        try:
            self.cluster.read(f"{CRDS}/{CRD}")
        except NotThere:
            return True
        return False

    def revisions(self) -> int:
        found = json.loads(self.run("history", self.name, "-o", "json").stdout)
        return int(found[-1]["revision"])

    @contextmanager
    def operator(self, folder: Path, eventually: Eventually) -> Iterator[Operator]:
        """What the Deployment's pod would run, as its ServiceAccount, in the namespaces of its arguments."""
        found = self.cluster.kubectl("get", "deployment", DEPLOYMENT, "-n", self.namespace, "-o", "json")
        (container,) = json.loads(found)["spec"]["template"]["spec"]["containers"]
        words = [word.partition("=") for word in container["args"]]
        namespaces = tuple(value for option, _, value in words if option == "--namespace")
        log = folder / f"{self.namespace}.log"
        (lease,) = [value for option, _, value in words if option == "--lease-namespace"]
        operator = Operator(
            self.cluster,
            NOWHERE,
            log,
            namespaces=namespaces,
            kubeconfig=self._kubeconfig(folder),
            lease_namespace=lease,
            arguments=tuple(word for word in container["args"] if word.startswith(PASSED_ON)),
        )
        eventually.logs.append(log)
        operator.start()
        try:
            eventually(operator.idle)
            yield operator
        finally:
            status = operator.stop()
        assert status == 0
        assert "Traceback" not in log.read_text()

    def _kubeconfig_of_user(self) -> Path:
        return self.cluster.kubeconfig if self.user == "admin" else self.cluster.token_kubeconfig(self.user)

    def _kubeconfig(self, folder: Path) -> Path:
        token = self.cluster.kubectl("create", "token", DEPLOYMENT, "-n", self.namespace).strip()
        content = json.loads(self.cluster.kubeconfig.read_text())
        content["users"][0]["user"] = {"token": token}
        path = folder / f"{self.namespace}.kubeconfig"
        path.write_text(json.dumps(content))
        return path

    def _upgrade(self, *settings: str) -> subprocess.CompletedProcess[str]:
        return self.run(
            # Without any value helm would take those of the last revision.
            *("upgrade", "--install", self.name, str(CHART), "--reset-values"),
            *(["--create-namespace"] if self.user == "admin" else []),
            *(f"--set={setting}" for setting in settings),
        )
