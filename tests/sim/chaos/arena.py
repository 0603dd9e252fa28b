"""An operator that sees its API server and its engines only through what can break, and the runs it is put through."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field

from graphpod_operator.kube.resources import Resource
from stubs.kubecall import WRITES, Which
from stubs.proxy import Proxy
from testbed import Cluster
from tests.api.operator.process import USER, Operator
from tests.audit import Audit, Trail
from tests.eventually import Eventually
from tests.places import Manifest
from tests.sim.chaos import oracles
from tests.sim.chaos.oracles import State
from tests.sim.chaos.scenarios import NAME, Scenario
from tests.sim.chaos.tally import Tally
from tests.sim.chaos.witness import Witness
from tests.sim.conftest import SimPlace
from tests.sim.history import History

BUILT_IN = ("", "apps", "policy", "networking.k8s.io", "autoscaling", "graphpod.dev")
"""Groups that every cluster with our CRD serves."""
KINDS = ",".join(
    f"{one.plural}.{one.group}".rstrip(".")
    for one in Resource
    if one.group in BUILT_IN and one is not Resource.Lease
)  # fmt: skip
WITHIN = 60.0  # s, of a run that does nothing but wait for the cluster


@dataclass(frozen=True)
class Outcome:
    """How a run ended, and the writes of the operator that it took."""

    state: State
    writes: int
    seconds: float


@dataclass
class Arena:
    """`user`s: whoever writes as an operator here."""

    cluster: Cluster
    proxy: Proxy
    operator: Operator
    witness: Witness
    audit: Audit
    open_place: Callable[[], SimPlace]
    tally: Tally
    users: tuple[str, ...] = (USER,)
    undisturbed: dict[str, Outcome] = field(default_factory=dict)

    def items(self, place: SimPlace) -> list[Manifest]:
        """Every object of the namespace that a service may own."""
        found: list[Manifest] = json.loads(place.kubectl("get", KINDS, "-o", "json"))["items"]
        return found

    def writes(self, place: SimPlace, mark: int) -> Trail:
        """What the operator wrote there since then."""
        return self.audit.since(mark).by(*self.users).of(place.namespace).writes()

    def sent(self, place: SimPlace) -> int:
        """Writes for this namespace that have come to the proxy."""
        return self.proxy.count(Which(WRITES, namespace=place.namespace))

    def idle(self) -> bool:
        """Whether the operator has nothing to do. One that ended by itself is started again, as a kubelet does."""
        if self.operator.process is not None and self.operator.process.poll() is not None:
            self.operator.start()
        return self.operator.idle()

    def normal(self, scenario: Scenario) -> Outcome:
        """The run that nothing disturbs; made once."""
        if scenario.name not in self.undisturbed:
            self.undisturbed[scenario.name] = self.run(scenario, "undisturbed", lambda *_: nullcontext(), None)
        return self.undisturbed[scenario.name]

    @contextmanager
    def prepared(self, scenario: Scenario) -> Iterator[tuple[SimPlace, History, History, Eventually]]:
        """A place in which the scenario may begin, and the histories of its services and pods from the beginning."""
        place = self.open_place()
        eventually = Eventually(lambda: [self.cluster], [(self.cluster, place.namespace)], [self.operator.log])
        with History.of(place) as services, History.of(place, "pod") as pods:
            if scenario.before is not None:
                place.apply(NAME, **scenario.before)
                eventually(place.reached("Ready", "True", "Ready", NAME), timeout=WITHIN)
                eventually(lambda: len(place.pods(NAME)) == scenario.before["replicas"])
            eventually(self.idle, timeout=WITHIN)
            yield place, services, pods, eventually

    def run(
        self,
        scenario: Scenario,
        fault: str,
        inject: "Inject",
        extra: int | None,
        *,
        within: float = WITHIN,
    ) -> Outcome:
        """The scenario with the fault, judged by every oracle. `extra`: writes it may cost beyond the undisturbed
        run's; None: this is that one.
        """
        wanted = self.normal(scenario) if extra is not None else None
        with (
            self.tally.telling(fault, scenario.name),
            self.prepared(scenario) as (place, services, pods, eventually),
            ExitStack() as broken,
        ):
            mark, began = self.audit.mark(), time.monotonic()
            broken.enter_context(inject(self, place))

            def asked() -> bool:
                """A user whose API server goes away asks again."""
                scenario.act(place)
                return True

            eventually(asked, timeout=within)

            def arrived() -> bool:
                self.idle()
                found = oracles.state(self.items(place))
                if wanted is not None:
                    assert not (said := oracles.differences(wanted.state, found)), "\n".join(said)
                elif scenario.after is None:
                    assert not found, f"still there: {', '.join(found)}"
                else:
                    place.reached("Ready", "True", "Ready", NAME)()
                    counts = [len(entry) for name, entry in found.items() if name.startswith("Pod of")]
                    assert counts == [scenario.after["replicas"]], f"pods: {counts}"
                return True

            eventually(arrived, timeout=within)
            broken.close()
            eventually(self.idle, timeout=within)
            eventually(arrived, timeout=within)  # what broke is whole again, and it is still so
            outcome = Outcome(oracles.state(self.items(place)), len(self.writes(place, mark)), time.monotonic() - began)
            bound = outcome.writes if wanted is None or extra is None else wanted.writes + extra
            told = [
                *oracles.orphans(self.items(place)),
                *oracles.excess(self.writes(place, mark), bound),
                *oracles.lies(services, pods, self.witness.heard),
            ]
            assert services.seen, "the watch saw the service"
            assert not told, "\n".join([*told, eventually.told()])
        self.tally.ran(fault, scenario.name, outcome.writes, bound, outcome.seconds)
        return outcome


Inject = Callable[[Arena, SimPlace], AbstractContextManager[object]]
"""Breaks something for as long as the context lasts. It is left once the run has arrived."""
