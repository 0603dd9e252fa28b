"""A testbed from the outside: up, down, and what one asks of it in between."""

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from testbed import steps as timing
from testbed.binaries import golang, packages
from testbed.binaries.foreign import Foreign
from testbed.command import run
from testbed.control import groups
from testbed.control.api import Api
from testbed.control.control_plane import NO_ENDPOINTS, ControlPlane
from testbed.control.pki import PEOPLE, Identities, read_token
from testbed.errors import TestbedError
from testbed.host import kernel, ledger, mounts, network, record
from testbed.host.cleaning import clean, left_over
from testbed.host.network import Addresses, Family, netns
from testbed.host.record import Component, Record
from testbed.level import Level
from testbed.name import check_name
from testbed.nodes import addons, kwok, pause
from testbed.nodes.node import Node
from testbed.process import Identity, alive, kill_all, spawn, wait_until
from testbed.steps import Steps

READY_LIMIT = 60.0  # s; etcd and the API server need 3 on two idle cores
TOOLS = {Level.API: golang.API_TOOLS, Level.SIM: golang.SIM_TOOLS, Level.NODE: golang.NODE_TOOLS}
NODES = {Level.API: 0, Level.SIM: 3, Level.NODE: 1}  # by default
NODE_LIMIT = {Level.API: 0, Level.SIM: kwok.NODE_LIMIT, Level.NODE: network.NODE_LIMIT}
LIST = {"apiVersion": "v1", "kind": "List"}
Report = Callable[[str], None]


class Cluster:
    """One testbed by name. Making the object touches nothing; `up` and `down` do, and need root.

    `api_server` are more flags for its API server; one that is up keeps those it was started with. `family` is what all
    of its addresses are of.
    """

    def __init__(
        self,
        name: str = "demo",
        level: Level | str = Level.NODE,
        nodes: int | None = None,
        *,
        api_server: Sequence[str] = (),
        family: Family | str = Family.IPV4,
    ) -> None:
        check_name(name)
        self.name, self.level = name, Level(level)
        self.nodes = NODES[self.level] if nodes is None or self.level is Level.API else nodes
        if self.level is not Level.API and not 1 <= self.nodes <= NODE_LIMIT[self.level]:
            raise TestbedError(f"--nodes {nodes}: level {self.level} has 1 to {NODE_LIMIT[self.level]} nodes")
        self.folder = record.folder(name)
        self._api_server = tuple(api_server)
        self.family = Family(family)
        if self.level is Level.SIM and self.family is Family.IPV6:
            raise TestbedError("level sim has IPv4 only: take level api or node for IPv6")

    @property
    def _machines(self) -> int:
        """Nodes with a kubelet."""
        return self.nodes if self.level is Level.NODE else 0

    # --- what one asks of a running testbed

    @property
    def kubeconfig(self) -> Path:
        """The admin's."""
        return self._identities.kubeconfig("admin")

    @property
    def audit_log(self) -> Path:
        """JSON lines, one request each, level Metadata."""
        return self.folder / "log" / "audit.log"

    @property
    def address(self) -> str:
        """URL of the API server, reachable from the host and from pods."""
        return self._addresses().server

    def binary(self, name: str) -> Path:
        """A built tool: kubectl, helm4, helm3, …"""
        return _binary(name)

    def kubectl(self, *args: str, input: str | None = None, timeout: float = 60.0) -> str:
        """Standard output of `kubectl args` as admin; `TestbedError` with its standard error when it fails."""
        argv: list[str | Path] = [self.binary("kubectl"), f"--cache-dir={self.folder}/kubectl-cache", *args]
        return run(argv, input=input, timeout=timeout, env=self.environment())

    def read(self, path: str) -> Any:
        """The object that the API server has at `path`, as admin; `TestbedError` where `kubectl get` would fail."""
        return self._api(self._addresses()).read(path)

    def apply(self, path: str, body: Any) -> None:
        """Server-side apply of the object at `path`, as admin, as `kubectl apply --server-side` does it."""
        self._api(self._addresses()).apply(path, body)

    def merge(self, path: str, change: Any) -> None:
        """Merge patch of the object at `path`, as admin."""
        self._api(self._addresses()).merge(path, change)

    def post(self, path: str, body: Any) -> Any:
        """Make an object in the collection at `path`, as admin; what the API server answers."""
        return self._api(self._addresses()).post(path, body)

    def delete(self, path: str) -> None:
        """Delete the object at `path`, as admin, and wait for nothing. One that is not there is fine."""
        self._api(self._addresses()).delete(path)

    def environment(self) -> dict[str, str]:
        """This process's environment with KUBECONFIG: for kubectl and helm."""
        self._addresses()  # an error with the remedy, rather than kubectl's about a missing file
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}

    def token_kubeconfig(self, user: str, groups: tuple[str, ...] = ()) -> Path:
        """A kubeconfig of one of the users made at `up` (see `pki.PEOPLE`); those without groups may do nothing yet."""
        known = {p.name: p.groups for p in PEOPLE}
        if user not in known or (groups and tuple(groups) != known[user]):
            table = ", ".join(f"{name} {list(g)}" for name, g in known.items())
            raise TestbedError(f"no static user {user!r} with groups {list(groups)}; there are: {table}")
        self._addresses()
        return self._identities.kubeconfig(user)

    def load(self, image: Path, report: Report = print) -> None:
        """Gives an image (a layout's folder, an archive) to every node; only layers that a node lacks are sent."""
        addresses = self._addresses()
        if not self._machines:
            raise TestbedError(f"testbed {self.name} has level {self.level}, which has no nodes to load {image} into")
        for index in range(1, self.nodes + 1):
            node = self._node(index, addresses, self.binary)
            began = time.monotonic()
            sent = node.images.load(image)
            took = "already there"
            if sent is not None:
                took = f"loaded in {time.monotonic() - began:.1f} s, {sent / 1e6:.1f} MB"
            report(f"{image.name} on {node.name}: {took}")

    def dead(self) -> list[Component]:
        """Components that should run and do not."""
        found = record.load(self.name)
        return found.dead() if found else []

    def process(self, component: str) -> Identity:
        """The living process of a component, as `etcd`: for what pauses or kills it."""
        found = record.load(self.name)
        living = {c.name: c.process for c in (found.components if found else ()) if alive(c.process)}
        if component not in living:
            raise TestbedError(f"testbed {self.name}: no {component} runs; there are {', '.join(living) or 'none'}")
        return living[component]

    def restart(self, *components: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Kills some of the control plane, and starts their command lines again at once, in the order given; what is
        done `meanwhile` finds none of them alive. The API server answers then.
        """
        living = {component: self.process(component) for component in components}
        lines = {name: Path(f"/proc/{one.pid}/cmdline").read_text().split("\0")[:-1] for name, one in living.items()}
        with record.locked(self.name):
            kill_all(lambda: list(living.values()))
            meanwhile()
            found = record.load(self.name)
            assert found is not None  # its components were just found there
            self._record = found
            again = {}
            for name, argv in lines.items():
                again[name] = self._component(name, list(argv))
                if name == "kube-apiserver":
                    self._answers()  # to whom comes next: a controller manager ends where none answers
        self._answers()
        for name, process in again.items():
            assert alive(process), f"{name} did not come back: {self._log(name)}"

    def _answers(self) -> None:
        """Waits until the API server does."""
        self._wait("kube-apiserver", self.process("kube-apiserver"), self._api(self._record.addresses).ready)

    def add_groups(self, report: Report = print) -> None:
        """Starts the controller of LeaderWorkerSets and serves its kind, in a testbed that is up."""
        binary = golang.build([groups.COMPONENT], report)[groups.COMPONENT]
        made = groups.Groups(self.folder, self._identities)
        with record.locked(self.name):
            found = record.load(self.name)
            if found is None or not found.ready:
                raise TestbedError(f"testbed {self.name} is not up")
            self._record = found
            made.write_files()
            kind = Foreign.LeaderWorkerSet
            self.kubectl("apply", "--server-side", "-f", str(kind.manifest()))
            api, served = self._api(found.addresses), f"/apis/{kind.crd.partition('.')[2]}/v1/leaderworkersets"
            self._wait("kube-apiserver", self.process("kube-apiserver"), lambda: api.get(served) is not None)
            process = self._component(groups.COMPONENT, made.manager(binary))
            log = self._log(groups.COMPONENT)
            self._wait(groups.COMPONENT, process, lambda: "Serving webhook server" in log.read_text())
            self.kubectl("apply", "--server-side", "-f", "-", input=json.dumps({**LIST, "items": made.webhooks()}))

    # --- up and down

    def up(self, report: Report = print) -> None:
        """Brings it up, or says that it is. What a killed one left behind is removed first."""
        kernel.check_root()
        packages.ensure(report)
        binaries = golang.build(TOOLS[self.level], report)
        with record.locked(self.name):
            old = record.load(self.name)
            if old is not None and old.ready and not old.dead() and self._api(old.addresses).ready():
                self._same(old)
                report(f"testbed {self.name}: already up")
                return
            if left_over(self.name):
                gone = ", ".join(c.name for c in old.dead()) if old else ""
                report(f"testbed {self.name}: cleaning what an earlier one left" + (f" (dead: {gone})" if gone else ""))
                clean(self.name, old)
            nodes = f", {self.nodes} node{'s' * (self.nodes > 1)}" if self.nodes else ""
            report(f"testbed {self.name}: level {self.level}{nodes}")
            steps = Steps(report)
            try:
                with steps.step("kernel has what is needed"):
                    kernel.check(self.level)
                self._start(binaries.__getitem__, steps)
                timing.save(steps, self.folder)
            except TestbedError as e:
                hint = f"`python3 -m testbed down --name {self.name}` removes what is there; logs: {self.folder}/log"
                raise TestbedError(f"{e}\n{hint}") from e
            report(f"testbed {self.name}: up in {steps.seconds:.1f} s")

    def down(self, report: Report = print) -> None:
        """Leaves the machine as it was before `up`, also after a kill -9 of anything. Nothing to do is fine."""
        kernel.check_root()
        with record.locked(self.name):
            if not left_over(self.name):
                report(f"testbed {self.name}: is not up")
                return
            began = time.monotonic()
            clean(self.name, record.load(self.name))
            report(f"testbed {self.name}: down in {time.monotonic() - began:.1f} s")

    def _same(self, old: Record) -> None:
        if (old.level, old.nodes, old.family) != (self.level, self.nodes, self.family):
            raise TestbedError(
                f"testbed {self.name} is up at level {old.level} with {old.nodes} nodes and {old.family}, not "
                f"{self.level} with {self.nodes} and {self.family}: take it down first "
                f"(`python3 -m testbed down --name {self.name}`) or use another --name"
            )

    def _start(self, binary: Callable[[str], Path], steps: Steps) -> None:
        self._record = self._reserve()
        addresses, ids = self._record.addresses, self._identities
        with steps.step("namespaces, links, routes"):
            network.raise_up(self.name, addresses, self._machines)
        with steps.step("keys, certificates, users"):
            ids.create(f"graphpod-{self.name}", addresses, self._machines)
        plane = ControlPlane(self.folder, addresses, ids, binary)
        plane.write_files()
        nodes = [self._node(i, addresses, binary) for i in range(1, self._machines + 1)]
        simulated = self.level is Level.SIM
        api = self._api(addresses)

        self._component("etcd", plane.etcd())
        faster = kwok.APISERVER_FLAGS if simulated else []
        server = self._component("kube-apiserver", [*plane.apiserver(), *faster, *self._api_server])
        if nodes:
            ledger.borrow(self.folder)
        for node in nodes:  # meanwhile
            with steps.step(f"containerd on {node.name}"):
                self._start_runtime(node)
        with steps.step("etcd, kube-apiserver ready"):
            self._wait("kube-apiserver", server, api.ready)
        flags = ([] if nodes else NO_ENDPOINTS) + (kwok.CONTROLLER_MANAGER_FLAGS if simulated else [])
        manager = self._component("kube-controller-manager", [*plane.controller_manager(), *flags])
        if nodes:
            self._start_nodes(plane, nodes, api, steps)
        elif simulated:
            self._simulate_nodes(plane, server, api, steps)
        with steps.step("kube-controller-manager ready"):
            self._wait("kube-controller-manager", manager, api.has_service_account)
        self._record = replace(self._record, ready=True)
        record.save(self._record)

    def _start_runtime(self, node: Node) -> None:
        node.write_files()
        node.make_cgroup()
        mounts.create(self.folder, node.index)
        name = f"containerd-{node.name}"
        runtime = self._component(name, node.containerd(), node=node.index)
        self._wait(name, runtime, node.images.answers)
        node.images.load(pause.archive())

    def _start_nodes(self, plane: ControlPlane, nodes: list[Node], api: Api, steps: Steps) -> None:
        addresses = plane.addresses
        self._component("kube-scheduler", plane.scheduler())
        kubelets = []
        for node in nodes:
            kubelets.append(self._component(f"kubelet-{node.name}", node.kubelet(), node=node.index))
            self._component(f"kube-proxy-{node.name}", node.kube_proxy(), node=node.index)
        proxy = self._component("kube-proxy", plane.kube_proxy())
        shared = addons.shared_volumes(self.folder)
        for folder in shared:
            folder.mkdir(parents=True)
        with steps.step("DNS service, volumes created"):
            objects = json.dumps(addons.manifests(addresses, nodes, shared))
            self.kubectl("create", "--validate=false", "-f", "-", input=objects)  # no schema fetched: 2 s less
        dns = self._component("coredns", plane.coredns())  # after its role: refused once, it waits long to ask again
        with steps.step("every node Ready"):
            for node, kubelet in zip(nodes, kubelets, strict=True):
                self._wait(f"kubelet-{node.name}", kubelet, partial(api.ready_node, node.name))
        with steps.step("services reachable"):
            service = replace(api, server=f"https://{network.in_url(addresses.kubernetes)}")
            self._wait("kube-proxy", proxy, service.ready)
        with steps.step("cluster DNS answers"):
            self._wait("coredns", dns, lambda: addons.resolves(addresses.api, "kubernetes.default.svc.cluster.local"))

    def _simulate_nodes(self, plane: ControlPlane, server: Identity, api: Api, steps: Steps) -> None:
        self._component("kube-scheduler", plane.scheduler())
        simulation = kwok.Simulation(self.folder, plane.addresses, self._identities, plane.binary)
        simulation.write_files()
        with steps.step("Stages, simulated nodes applied"):
            api.create(kwok.KINDS_PATH, [kwok.stage_kind()])
            api.create("/api/v1/nodes", map(kwok.node, range(1, self.nodes + 1)))
            self._wait("kube-apiserver", server, lambda: api.get(kwok.STAGES_PATH) is not None)
            self.kubectl("create", "-f", str(kwok.STAGES))
        player = self._component("kwok", simulation.kwok())
        with steps.step("every node Ready"):
            self._wait("kwok", player, lambda: api.ready_nodes() == self.nodes)

    def _node(self, index: int, addresses: Addresses, binary: Callable[[str], Path]) -> Node:
        return Node(self.name, index, self.folder / f"node{index}", addresses, self._identities, binary)

    def _reserve(self) -> Record:
        """Takes a free number and writes it down, before anything on the machine changes."""
        with record.locked("numbers.lock", patience=READY_LIMIT):
            number = network.free_id(network.read_host_networks(), (r.id for r in record.load_all()))
            new = Record(self.name, number, self.level, self.nodes, family=self.family)
            record.save(new)
            return new

    def _component(self, name: str, argv: list[str | Path], *, node: int = 0) -> Identity:
        """Starts one, inside the namespaces of its node (0: the control plane); noted before anybody waits for it.

        `nsenter`, not `ip netns exec`: the latter mounts /sys again, and the kubelet finds no cgroups.
        """
        enter: list[str | Path] = ["nsenter", f"--net=/run/netns/{netns(self.name, node)}"]
        if node:
            enter.append(f"--mount={mounts.handle(self.folder, node)}")
        log = self._log(name)
        process = spawn([*enter, *argv], log)
        self._record = self._record.with_component(Component(name, process, str(log)))
        record.save(self._record)
        return process

    def _wait(self, name: str, process: Identity, ready: Callable[[], bool], limit: float = READY_LIMIT) -> None:
        wait_until(name, ready, process, self._log(name), limit)

    def _log(self, component: str) -> Path:
        return self.folder / "log" / f"{component}.log"

    @property
    def _identities(self) -> Identities:
        return Identities(self.folder / "pki")

    def _addresses(self) -> Addresses:
        found = record.load(self.name)
        if found is None:
            raise TestbedError(f"testbed {self.name} is not up: run `python3 -m testbed up --name {self.name}`")
        return found.addresses

    def _api(self, addresses: Addresses) -> Api:
        ids = self._identities
        return Api(addresses.server, ids.ca, read_token(ids.tokens.read_text(), "admin"))


@cache
def _binary(name: str) -> Path:
    """Once a process: to find one asks Go for its version, and tests call kubectl hundreds of times."""
    return golang.binary(name)
