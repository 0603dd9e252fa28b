"""The operator as a process of its own, under a user that has exactly the operator's rules."""

import os
import signal
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

import graphpod_operator
from graphpod_operator.install.engine_images import Images
from graphpod_operator.install.installation import Installation
from testbed import Cluster
from testbed.binaries.foreign import Foreign
from tests.api.operator.forks import nursery
from tests.eventually import Eventually
from tests.forked import Forked
from tests.places import Place
from tests.ports import free_port

USER = "operator"
RULES, LEASE_RULES, OPTIONAL_RULES = (
    Path(graphpod_operator.__file__).with_name(name) for name in ("rbac.yaml", "rbac-lease.yaml", "rbac-optional.yaml")
)
LEASES = "default"
"""The namespace in which operators take turns, unless a test has one of its own."""
IMAGES = Images("graphpod.dev/runtime:test", "graphpod.dev/runtime:test-gpu")
INSTALLED = Installation(IMAGES)
STOP_SECONDS = 30
HASTY = "from graphpod_operator.watch import optional_kinds as kinds; kinds.EVERY_SECONDS = 1.0"
"""Of `before`: a look at what is served each second."""
MAIN = "import sys; from graphpod_operator.cli import main; sys.exit(main())"

LEADS = 'leader_election_master_status{name="graphpod-operator"}'
WAITING = 'workqueue_depth{name="inferenceservice"}'
WORKED_ON = 'controller_runtime_active_workers{controller="inferenceservice"}'
GROUP = "rbac.authorization.k8s.io"


def grant(cluster: Cluster, user: str = USER, namespace: str | None = None) -> None:
    """Bind a user to the operator's rules, those about optional kinds among them, in one namespace or (None) in the
    whole cluster, and to those of its Lease there or in LEASES.
    """
    optional = [rule for kind in yaml.safe_load(OPTIONAL_RULES.read_text()).values() for rule in kind]
    objects = [
        *_bound(user, RULES.stem, [*yaml.safe_load(RULES.read_text()), *optional], namespace),
        *_bound(user, LEASE_RULES.stem, yaml.safe_load(LEASE_RULES.read_text()), namespace or LEASES),
    ]
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(objects))


def serve(place: Place, foreign: Foreign) -> None:
    """Install the CRD of others; objects of it can be made then."""
    cluster, (plural, _, group) = place.cluster, foreign.crd.partition(".")
    cluster.kubectl("apply", "--server-side", "-f", str(foreign.manifest()))

    def found() -> bool:
        """Not `kubectl wait`, which fails where the conditions are not written yet; and discovery follows them."""
        version = cluster.read(f"/apis/{group}")["preferredVersion"]["groupVersion"]
        return plural in {one["name"] for one in cluster.read(f"/apis/{version}")["resources"]}

    Eventually(lambda: [place.cluster])(found)


def _bound(user: str, called: str, rules: list[dict[str, Any]], namespace: str | None) -> list[dict[str, Any]]:
    kind = "Role" if namespace else "ClusterRole"
    name = f"{called}-of-{user}"
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    role = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, "rules": rules}
    binding = {
        "apiVersion": f"{GROUP}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}],
    }
    return [role, binding]


def paths(sources: Iterable[Path]) -> dict[str, str]:
    """The environment of a process whose packages come from these folders; empty for today's."""
    found = os.pathsep.join(map(str, sources))
    return {"PYTHONPATH": found} if found else {}


@dataclass
class Operator:
    """One operator pod, whose containers follow one another; `log` keeps what every run of it said.

    `kubeconfig`: another than the static user's; `arguments`: of its command line, besides; `before`: Python that runs
    in the process before it, to make long times short; `sources`: folders of the packages, where they are not today's.
    """

    cluster: Cluster
    admin_url: str
    log: Path
    user: str = USER
    namespaces: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | Forked | None = None
    kubeconfig: Path | None = None
    arguments: tuple[str, ...] = ()
    lease_namespace: str = LEASES
    before: str = ""
    image: str = IMAGES.cpu
    sources: tuple[Path, ...] = ()
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))

    def said(self, words: str, place: Place) -> list[str]:
        """The lines of its log with `words` about what is in `place`: it serves other tests, too."""
        return [line for line in self.log.read_text().splitlines() if words in line and f'"{place.namespace}/' in line]

    def start(self, *, whole: bool = False) -> None:
        """`whole`: as a container starts it, with an interpreter of its own and all its imports. Otherwise a process
        that has imported them is forked, unless the packages are others.
        """
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig or self.cluster.token_kubeconfig(self.user)),
            "POD_UID": self.uid,
            **paths(self.sources),
        }
        arguments = [
            "operator",
            "run",
            "--engine-image",
            self.image,
            "--engine-gpu-image",
            IMAGES.gpu,
            "--port",
            str(self.port),
            "--admin-url",
            self.admin_url,
            "--lease-namespace",
            self.lease_namespace,
        ]
        arguments += [f"--namespace={namespace}" for namespace in self.namespaces] + list(self.arguments)
        if not (whole or self.sources):
            self.process = nursery().start(self.before, arguments, environment, self.log)
            return
        command = [sys.executable, "-c", f"{self.before}\n{MAIN}"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*command, *arguments], stdout=log, stderr=log, env=environment)

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def resume(self) -> None:
        """Starts it unless it runs."""
        if not self.runs:
            self.start()

    def pause(self) -> None:
        """Ends it if it runs, so that another one may lead."""
        if self.runs:
            assert self.stop() == 0, self.tail()

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

    def ask(self, path: str, port: int | None = None) -> tuple[int, str]:
        """Status and body of a GET on the operator's own port, or on another of its ports; status 0 while nothing
        listens.
        """
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port or self.port}{path}", timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def metric(self, series: str) -> float:
        """The value of one series, 0 when it is not there."""
        return self.metrics(series)[0]

    def metrics(self, *series: str) -> list[float]:
        """The values of some series at one time, 0 of one that is not there."""
        lines = (line.rpartition(" ") for line in self.ask("/metrics")[1].splitlines())
        found = {name: value for name, _, value in lines}
        return [float(found.get(one, 0.0)) for one in series]

    def leads(self) -> bool:
        """Whether it may write."""
        return self.metric(LEADS) == 1

    def idle(self) -> bool:
        """Whether it leads, no key waits and none is worked on."""
        return self.ask("/readyz")[0] == 200 and self.metrics(LEADS, WAITING, WORKED_ON) == [1, 0, 0]

    def tail(self) -> str:
        """The log's last lines, as evidence."""
        return "\n".join(["--- operator's log", *self.log.read_text().splitlines()[-60:]])
