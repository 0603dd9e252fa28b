"""What a run stands on: an API server with scheduler and simulated nodes, stub engines, and operators as processes."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from graphpod_operator.api.names import KIND
from stubs.proxy import Proxy
from testbed import Cluster
from testbed.host import record
from tests.api.operator.process import USER, Operator, grant
from tests.audit import Audit, Trail
from tests.crd import serve_crd
from tests.places import Place
from tests.sim.fleet import FleetProcess
from tests.sim.weights import weights

NAMESPACE = "scale"
CHILDREN = ("serviceaccounts", "configmaps", "services", "controllerrevisions", "deployments")
"""What the operator makes for a service of one replica, by the API server's names."""
RATED = ("--kube-api-qps=500", "--kube-api-burst=1000")
"""What controller manager and scheduler are started with: at the default of 20 a second they are what is measured."""
TUNED = ("GOGC=400",)
"""The environment of the cluster's own processes, of which only the API server's memory is large: memory is not what a
machine of two cores lacks.
"""
TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def compiled() -> Iterator[None]:
    """Operators that start meanwhile are byte-compiled, as the image's is: compiling at each start takes as much time
    as all the rest of it, and megabytes.
    """
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="operator-scale-pycache-") as folder:
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        try:
            subprocess.run(
                [sys.executable, "-c", "import graphpod_operator.cli, graphpod_operator.manager.run, uvloop"],
                check=True,
            )
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def quiet(_: str) -> None:
    """The testbed's steps are in its own record."""


@dataclass(frozen=True)
class Usage:
    """What a process holds and has used."""

    rss: int  # bytes
    peak: int  # bytes, the most it ever held
    cpu: float  # s, user and system

    @classmethod
    def of(cls, pid: int) -> "Usage":
        lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        memory = {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[0] in ("VmRSS:", "VmHWM:")}
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return cls(memory["VmRSS"], memory["VmHWM"], (int(fields[11]) + int(fields[12])) / TICKS)


@dataclass
class Bed:
    """One simulated cluster. `folder` keeps what its processes said."""

    cluster: Cluster
    fleet: FleetProcess
    folder: Path
    audit: Audit
    running: list[Operator] = field(default_factory=list)

    def operator(self, name: str, proxy: Proxy | None = None) -> Operator:
        """An operator pod of its own, started; behind a proxy if there is one."""
        kubeconfig = None
        if proxy is not None:
            kubeconfig = proxy.kubeconfig(self.cluster.token_kubeconfig(USER), self.folder / f"{name}.kubeconfig")
        operator = Operator(self.cluster, self.fleet.url, self.folder / f"{name}.log", kubeconfig=kubeconfig)
        operator.start()
        self.running.append(operator)
        return operator

    def runs_with(self, component: str, flags: Iterable[str]) -> bool:
        """Whether a component of the cluster was started with these."""
        return set(flags) <= set(Path(f"/proc/{self._pids()[component]}/cmdline").read_text().split("\0"))

    @contextmanager
    def held_still(self) -> Iterator[None]:
        """Meanwhile the controller manager does nothing, so there are no pods to schedule or to play."""
        controllers = self._pids()["kube-controller-manager"]
        os.kill(controllers, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(controllers, signal.SIGCONT)

    def mark(self) -> int:
        """A place in the audit log."""
        return self.audit.mark()

    def writes(self, mark: int) -> Trail:
        """What operators wrote since a mark, but for their Lease."""
        return Trail(one for one in self.audit.since(mark).by(USER).writes() if one.resource != "leases")

    def cpu(self) -> dict[str, float]:
        """CPU seconds of every component, the stub engines included, since each began."""
        assert self.fleet.process is not None
        pids = self._pids() | {"stub engines": self.fleet.process.pid}
        return {name: Usage.of(pid).cpu for name, pid in pids.items()}

    def events(self) -> Counter[str]:
        """Events of each service."""
        names = "custom-columns=NAME:.involvedObject.name"
        which = f"--field-selector=involvedObject.kind={KIND}"
        return Counter(
            self.cluster.kubectl("-n", NAMESPACE, "get", "events", which, "--no-headers", "-o", names).split()
        )

    def _pids(self) -> dict[str, int]:
        found = record.load(self.cluster.name)
        assert found is not None
        return {one.name: one.process.pid for one in found.components}


@contextmanager
def laid(name: str, folder: Path, api_server: tuple[str, ...] = ()) -> Iterator[Bed]:
    """A fresh one, gone at the end with all it started; `api_server` are more flags for the API server."""
    cluster = Cluster(name, "sim", api_server=api_server)
    cluster.down(quiet)  # what a run that was killed left is no ground to measure on
    with ExitStack() as stack:
        stack.callback(cluster.down, quiet)
        with _tuned():
            cluster.up(quiet)
        serve_crd(cluster)
        grant(cluster)
        place = Place(cluster, NAMESPACE)
        place.create()
        cluster.kubectl("create", "-f", "-", input=json.dumps(weights(NAMESPACE)))
        fleet = FleetProcess(cluster, folder / "engines.log")
        fleet.start()
        stack.callback(fleet.stop)
        bed = Bed(cluster, fleet, folder, Audit(cluster.audit_log))
        wanted = {"kube-apiserver": api_server, "kube-controller-manager": RATED, "kube-scheduler": RATED}
        for component, flags in wanted.items():
            assert bed.runs_with(component, flags), f"{component} runs without {' '.join(flags)}"
        stack.callback(_end, bed.running)
        yield bed


@contextmanager
def _tuned() -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(dict(one.split("=") for one in TUNED))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _end(operators: list[Operator]) -> None:
    for operator in operators:
        if operator.process is not None and operator.process.poll() is None:
            operator.kill()
