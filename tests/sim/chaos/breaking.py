"""How each fault is done: what breaks for as long as a context lasts."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from stubs.engine.start_settings import ANNOTATIONS
from stubs.faults.fault import Answer, Cut, Effect, Turn
from stubs.kubecall import Verb, Which
from testbed.errors import TestbedError
from testbed.nodes.kwok import SIMULATED
from testbed.process import send
from tests.api.operator.process import grant
from tests.eventually import Eventually
from tests.places import LABEL
from tests.ports import free_port
from tests.sim.chaos.arena import WITHIN, Arena, Inject
from tests.sim.chaos.aside import meanwhile
from tests.sim.chaos.scenarios import NAME
from tests.sim.conftest import SimPlace

WATCHES = frozenset({Verb.WATCH})
READS = frozenset({Verb.GET, Verb.LIST})
ENGINES = Path(__file__).with_name("engines.yaml")
ROUNDS, ROUND_SECONDS = 6, 0.5
"""Of a rival who writes against the operator."""
RELENTLESS = 60
"""Rounds of one who does not pause."""
SECOND = "user3"
"""Whom the second operator is to the API server."""
PROBE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "probe"},
    "spec": {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "main",
                "image": "example/image:1",
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    },
}
"""A pod that is only asked about."""


def wire(effect: Effect, verbs: frozenset[Verb], turn: Turn | None = None) -> Inject:
    """Requests of these verbs about the place (watches: all of the operator's) meet the effect."""

    @contextmanager
    def inject(arena: Arena, place: SimPlace) -> Iterator[None]:
        which = Which(verbs, namespace=None if verbs == WATCHES else place.namespace)
        with arena.proxy.during(effect, which, turn) as armed:
            yield
        assert armed.hits > 0, "it befell a request"

    return inject


def watches_refused(answer: Answer, times: int) -> Inject:
    """Every watch ends, and the next ones are refused so often."""

    @contextmanager
    def inject(arena: Arena, _: SimPlace) -> Iterator[None]:
        refused = arena.proxy.add(answer, Which(WATCHES), Turn(times=times))
        with arena.proxy.during(Cut(), Which(WATCHES), Turn(times=len(WATCHES) * 4)):
            yield
        Eventually()(lambda: refused.hits > 0)  # watches that were cut are opened again after a pause
        arena.proxy.lift(refused)

    return inject


def watches_frozen(effect: Effect, seconds: float) -> Inject:
    """The watches tell nothing for so long, and everything afterwards."""

    def freeze(arena: Arena, _: SimPlace) -> None:
        with arena.proxy.during(effect, Which(WATCHES)):
            pause(seconds)

    return beside(freeze)


def beside(work: Callable[[Arena, SimPlace], None]) -> Inject:
    """Done once, while the operator is at work."""
    return lambda arena, place: meanwhile(lambda: work(arena, place))


def amid_writes(work: Callable[[Arena], None], after: int = 3) -> Inject:
    """Done once the operator has sent so many writes or, where there is nothing to write, at once."""

    def once(arena: Arena, place: SimPlace, begun: int) -> None:
        deadline = time.monotonic() + 2.0
        while arena.sent(place) < begun + after and time.monotonic() < deadline:
            pause(0.01)
        work(arena)

    def inject(arena: Arena, place: SimPlace) -> AbstractContextManager[None]:
        begun = arena.sent(place)
        return meanwhile(lambda: once(arena, place, begun))

    return inject


def api_server_killed(arena: Arena) -> None:
    arena.cluster.restart("kube-apiserver")


def etcd_paused(seconds: float) -> Callable[[Arena], None]:
    def stand_still(arena: Arena) -> None:
        etcd = arena.cluster.process("etcd")
        send(etcd, signal.SIGSTOP)
        try:
            pause(seconds)
        finally:
            send(etcd, signal.SIGCONT)

    return stand_still


def operator_stopped(arena: Arena) -> None:
    """Told to end, and started again."""
    assert arena.operator.stop() == 0
    arena.operator.start()


def operator_frozen(seconds: float) -> Callable[[Arena], None]:
    def freeze(arena: Arena) -> None:
        assert arena.operator.process is not None
        arena.operator.process.send_signal(signal.SIGSTOP)
        pause(seconds)
        arena.operator.process.send_signal(signal.SIGCONT)

    return freeze


@contextmanager
def two_operators(arena: Arena, place: SimPlace) -> Iterator[None]:
    """One waits for the Lease. The other is killed amid its writes, and comes back to wait."""
    grant(arena.cluster, SECOND)
    kubeconfig = arena.operator.log.with_name(f"{SECOND}.kubeconfig")
    arena.proxy.kubeconfig(arena.cluster.token_kubeconfig(SECOND), kubeconfig)
    first = arena.operator
    second = replace(first, user=SECOND, kubeconfig=kubeconfig, process=None, port=free_port(), uid="second")
    second.start()
    Eventually(logs=[first.log])(lambda: second.ask("/readyz")[0] == 200, timeout=WITHIN)
    arena.users = (*arena.users, SECOND)
    try:
        with amid_writes(lambda _: first.kill())(arena, place):
            arena.operator = second
            yield
        Eventually(logs=[first.log])(second.leads, timeout=WITHIN)
    finally:
        first.start()
        second.stop()  # which leaves the Lease to the first
        arena.operator = first


def clock_off(seconds: int) -> Inject:
    """The operator's machine has a wrong wall clock."""

    @contextmanager
    def inject(arena: Arena, _: SimPlace) -> Iterator[None]:
        operator = arena.operator
        operator.stop()
        operator.before = (
            f"import time, datetime\nright = time.time\ntime.time = lambda: right() + {seconds}\n"
            "class Wrong(datetime.datetime):\n"
            " @classmethod\n"
            " def now(cls, tz=None): return cls.fromtimestamp(time.time(), tz)\n"
            "datetime.datetime = Wrong\n"
        )
        operator.start()
        try:
            yield
        finally:
            operator.stop()
            operator.before = ""
            operator.start()

    return inject


def rival(work: Callable[[SimPlace], None], rounds: int = ROUNDS, every: float = ROUND_SECONDS) -> Inject:
    """Somebody who writes what is not his, so often."""

    def write(_: Arena, place: SimPlace) -> None:
        for _round in range(rounds):
            with suppress(TestbedError):  # the object is not there yet, or gone
                work(place)
            pause(every)

    return beside(write)


def on_children(place: SimPlace) -> None:
    place.kubectl("scale", "deployment", NAME, "--replicas=5")
    place.kubectl("label", "service,pdb", NAME, "app.kubernetes.io/part-of=nobody", "--overwrite")


def on_replicas(place: SimPlace) -> None:
    place.kubectl("scale", "deployment", NAME, "--replicas=5")


def on_status(place: SimPlace) -> None:
    lie = {"phase": "Refused", "replicas": 9, "url": "http://elsewhere"}
    place.kubectl("patch", "gisvc", NAME, "--subresource=status", "--type=merge", "-p", json.dumps({"status": lie}))


def status_wiped(place: SimPlace) -> None:
    place.kubectl("patch", "gisvc", NAME, "--subresource=status", "--type=merge", "-p", '{"status": null}')


@contextmanager
def node_lost(arena: Arena, place: SimPlace) -> Iterator[None]:
    """The kubelet of a pod's node says nothing more, and the node controller has noticed. It comes back in the end."""
    lost: list[str] = []

    def lose() -> None:
        node = Eventually()(lambda: next((pod["spec"].get("nodeName") for pod in place.pods(NAME)), None))
        lost.append(node)
        arena.cluster.kubectl("annotate", "node", node, f"{SIMULATED}-")
        why = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
        status = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", **why}]}}
        arena.cluster.kubectl("patch", "node", node, "--subresource=status", "-p", json.dumps(status))

    try:
        with meanwhile(lose):
            yield
    finally:
        for node in lost:
            arena.cluster.kubectl("annotate", "node", node, f"{SIMULATED}=fake")


def engines(fault: str = "", image: str = "", told: tuple[str, str, str] | None = None) -> Inject:
    """The pods that are made have this fault. Once the status has `told` so, they are made anew without it."""

    def mend(place: SimPlace) -> None:
        if told is None:
            return

        Eventually(places=[(place.cluster, place.namespace)])(place.reached(*told, NAME), timeout=WITHIN)
        place.kubectl("delete", "configmap", "chaos")
        place.kubectl("delete", "pods", "-l", f"{LABEL}={NAME}", "--wait=false")  # the next ones are well

    @contextmanager
    def inject(_: Arena, place: SimPlace) -> Iterator[None]:
        words = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "chaos"}}
        place.cluster.kubectl("apply", "-f", str(ENGINES))
        place.kubectl("create", "-f", "-", input=json.dumps({**words, "data": {"fault": fault, "image": image}}))
        Eventually()(lambda: _befallen(place, fault, image))
        with meanwhile(lambda: mend(place)):
            yield

    return inject


def _befallen(place: SimPlace, fault: str, image: str) -> bool:
    """Whether a pod that would be made now has the fault."""
    made = json.loads(place.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=json.dumps(PROBE)))
    annotations = made["metadata"].get("annotations") or {}
    return annotations.get(ANNOTATIONS["fault"]) == fault and image in ("", made["spec"]["containers"][0]["image"])


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)
