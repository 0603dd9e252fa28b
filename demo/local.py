"""The demo's own cluster: a testbed, made for it and taken down whole."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.answer import address, curl
from demo.ground import Say
from demo.service import NAME, NAMESPACE
from testbed import Cluster
from testbed.binaries import golang, packages
from testbed.command import run

ROOT = Path(__file__).resolve().parent.parent
HELM_LIMIT = 120.0  # s


class Testbed:
    """A `Ground` on a testbed, which need not be up before `prepare`; `helm` is the binary's name in the testbed."""

    __test__ = False  # the name begins like a test class; pytest must not collect it

    storage_class = ""

    def __init__(self, cluster: Cluster, helm: str = "helm4") -> None:
        self._cluster, self._helm = cluster, helm

    def kubectl(self, *args: str, input: str | None = None, timeout: float = 60.0) -> str:
        return self._cluster.kubectl(*args, input=input, timeout=timeout)

    def helm(self, *args: str) -> str:
        return run([self._cluster.binary(self._helm), *args], timeout=HELM_LIMIT, env=self._cluster.environment())

    def tools(self, say: Say) -> str:
        packages.ensure(say)
        used = golang.build((*golang.NODE_TOOLS, self._helm), say)
        return f"Kubernetes and Helm, {len(used)} binaries"

    def prepare(self, say: Say) -> str:
        self._cluster.up(say)
        return f"Kubernetes {golang.KUBERNETES}, one node, KUBECONFIG={self._cluster.kubeconfig}"

    @contextmanager
    def reach(self, namespace: str, service: str) -> Iterator[str]:
        yield address(self, namespace, service)

    def next_steps(self) -> list[str]:
        """For a shell that knows nothing of the testbed."""
        tools = {self._cluster.binary(name).parent for name in ("kubectl", self._helm)}
        return [
            curl(address(self)),
            f"export KUBECONFIG={self._cluster.kubeconfig} PATH={':'.join(sorted(map(str, tools)))}:$PATH",
            f"kubectl -n {NAMESPACE} describe gisvc {NAME}",
            f"make -C {ROOT} demo-down",
        ]

    def down(self, say: Say) -> str:
        self._cluster.down(say)
        return ""
