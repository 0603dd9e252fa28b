"""The reader's own cluster: the current context of kubectl, named by the reader before anything is sent to it."""

import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.answer import curl
from demo.chart import CHART
from demo.chart import NAMESPACE as SYSTEM
from demo.current import ownership, preflight
from demo.current.kubeconfig import Context
from demo.ground import Say
from demo.service import NAME, NAMESPACE
from testbed.binaries import golang
from testbed.command import run
from testbed.errors import TestbedError

HELM_LIMIT = 180.0  # s
FORWARD_LIMIT = 30.0  # s
HELM_AT_LEAST = (3, 13)  # knows --labels


class CurrentContext:
    """A `Ground` on a context that was confirmed. Every call names that context, so a later `use-context` elsewhere
    changes nothing, and nothing else in the environment leads kubectl or helm to another server.
    """

    def __init__(self, context: Context, storage_class: str = "") -> None:
        self._context, self.storage_class = context, storage_class
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HELM_KUBE")}
        self._environment = {**kept, "KUBECONFIG": context.kubeconfig}
        self._programs: dict[str, Path] = {}

    def kubectl(self, *args: str, input: str | None = None, timeout: float = 60.0) -> str:
        command: list[str | Path] = [self._program("kubectl"), "--context", self._context.name, *args]
        return run(command, input=input, timeout=timeout, env=self._environment)

    def helm(self, *args: str) -> str:
        command: list[str | Path] = [self._program("helm"), "--kube-context", self._context.name, *args]
        return run(command, timeout=HELM_LIMIT, env=self._environment)

    def tools(self, say: Say) -> str:
        found = {name: self._program(name, say) for name in ("kubectl", "helm")}
        version = run([found["helm"], "version", "--short"], env=self._environment).strip()
        check_helm(version)
        return ", ".join(str(path) for path in found.values())

    def prepare(self, say: Say) -> str:
        checked = preflight.check(self, self.storage_class)
        for name in (SYSTEM, NAMESPACE):
            ownership.claim_namespace(self, name)
        return f"{checked}, context {self._context.name}"

    @contextmanager
    def reach(self, namespace: str, service: str) -> Iterator[str]:
        """By `kubectl port-forward`, since cluster addresses lead nowhere from a reader's machine."""
        command = [str(self._program("kubectl")), "--context", self._context.name, "-n", namespace]
        command += ["port-forward", "--address", "127.0.0.1", f"service/{service}", ":80"]
        forward = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self._environment
        )
        try:
            yield f"http://127.0.0.1:{_port(forward)}"
        finally:
            forward.terminate()
            forward.wait()

    def next_steps(self) -> list[str]:
        kubectl = f"kubectl --context {self._context.name} -n {NAMESPACE}"
        return [
            f"{kubectl} describe gisvc {NAME}",
            f"{kubectl} port-forward service/{NAME} 8000:80 &",
            curl("http://localhost:8000"),
            f"make -C {CHART.parent.parent} demo-down CLUSTER=current",
        ]

    def down(self, say: Say) -> str:
        return ownership.remove(self, say)

    def _program(self, name: str, say: Say = lambda _: None) -> Path:
        """From PATH, else the testbed's, which is built when it is not there yet."""
        if name not in self._programs:
            ours = "helm4" if name == "helm" else name
            if on_path := shutil.which(name):
                self._programs[name] = Path(on_path)
            else:
                say(f"{name} is not on PATH: using the one the testbed builds")
                self._programs[name] = golang.build([ours], say)[ours]
        return self._programs[name]


def check_helm(version: str) -> None:
    """Raises `TestbedError` for a helm too old to label a release; `version` is `helm version --short`."""
    found = re.search(r"v(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < HELM_AT_LEAST:
        wanted = ".".join(map(str, HELM_AT_LEAST))
        raise TestbedError(f"helm on PATH says it is {version!r}; the demo needs Helm {wanted} or newer, or Helm 4")


def _port(forward: subprocess.Popen[str]) -> int:
    """The local port that kubectl chose, from its first line."""
    assert forward.stdout is not None  # opened with a pipe
    end, said = time.monotonic() + FORWARD_LIMIT, ""
    while time.monotonic() < end and forward.poll() is None:
        if not select.select([forward.stdout], [], [], 0.2)[0]:
            continue
        said += forward.stdout.readline()
        if found := re.search(r"127\.0\.0\.1:(\d+) ->", said):
            return int(found[1])
    said += "" if forward.poll() is None else forward.stdout.read()
    raise TestbedError(f"`kubectl port-forward` opened no port within {FORWARD_LIMIT:.0f} s:\n{said.strip()}")
