"""What the operator writes (contract 9): nothing where all is in order, one write for each thing that is not.

All tests share one service with every kind of child, and an operator that lists everything again every 2 s.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from graphpod_operator.cache.service import Service
from graphpod_operator.kube.field_ownership import desired_fields, owned_fields
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.desired_child import DesiredChild
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from tests.api.operator.pods import AdminPorts, report, running, set_status
from tests.api.operator.process import INSTALLED, Operator, grant
from tests.audit import Audit, Trail
from tests.eventually import Eventually
from tests.places import LABEL, Manifest, Place, service

USER = "user1"
OFTEN = """
from graphpod_operator.watch import relist as resync
resync.EVERY_SECONDS, resync.DELIVERY_SECONDS, resync.SETTLE_SECONDS = 2.0, 0.5, 0.5
"""
"""A resync every 2 s."""
STAGES = ((0.0, "Loading"), *((part / 5, "Capturing") for part in range(1, 5)), (1.0, "SelfChecking"))
"""What a pod tells while it starts: how much is captured, and where it has got to."""
WHOLE = {"replicas": 2}
"""A spec that wants every kind of child."""


def planned() -> tuple[DesiredChild, ...]:
    """The children of such a service, by the planner alone."""
    metadata = {"namespace": "x", "uid": "x", "resourceVersion": "1"}
    wanted = desire(PlanInput(Service.of(service("whole", metadata, **WHOLE)), INSTALLED))
    assert isinstance(wanted, Desired)
    return wanted.children


KINDS = tuple(dict.fromkeys(child.resource for child in planned()))
CREATE_TO_READY = len(KINDS) + 8


@dataclass(frozen=True)
class Scene:
    """A namespace that an operator of its own looks after, with a service called `whole` in it."""

    place: Place
    operator: Operator
    audit: Audit
    eventually: Eventually

    def written(self, mark: int) -> Trail:
        return self.audit.since(mark).by(USER).of(self.place.namespace).writes().steady()

    def resynced(self) -> None:
        """Waits for a whole round of lists, and for the work it brings."""
        mark, pods = self.audit.mark(), Resource.Pod.plural

        def lists() -> int:
            read = self.audit.since(mark).by(USER)
            return sum((one.verb, one.resource) == ("list", pods) for one in read)

        self.eventually(lambda: lists() > 1)
        self.eventually(self.operator.idle)

    def name(self, resource: Resource) -> str:
        found = self.place.names(resource.plural, f"{LABEL}=whole")
        (name,) = found
        return name.partition("/")[2]

    def start_pods(self, admin_ports: AdminPorts, name: str) -> None:
        """What kubelets and engines do while pods start; each word of theirs is heard."""
        pods = self.place.pods(name)
        for captured, state in STAGES:
            reads = {pod["metadata"]["name"]: admin_ports.reads_of(pod) for pod in pods}
            for pod in pods:
                admin_ports.tell(pod, report(pod, state, captured))
                if state == "Loading":
                    set_status(self.place.cluster, pod, running(ready=False))
            self.eventually(lambda: all(admin_ports.reads_of(pod) > reads[pod["metadata"]["name"]] for pod in pods))  # noqa: B023
        self.ready_pods(admin_ports, name)

    def ready_pods(self, admin_ports: AdminPorts, name: str = "whole") -> None:
        """The pods of a service serve, all at once: a while between two of them may be told in a write of its own."""
        pods = self.place.pods(name)
        for pod in pods:
            admin_ports.tell(pod, report(pod))
        for pod in pods:
            set_status(self.place.cluster, pod, running(ready=True))

    def has_its_pods(self) -> bool:
        """Whether the pods of `whole` are its Deployment's; those of one that was deleted may be there for a while."""
        deployment = self.place.get("deployment", "whole")["metadata"]["uid"]
        found = self.place.all("replicaset", f"{LABEL}=whole")
        sets = {one["metadata"]["uid"] for one in found if _owner(one) == deployment}
        pods = self.place.pods("whole")
        return len(pods) == WHOLE["replicas"] and all(_owner(pod) in sets for pod in pods)


@pytest.fixture(scope="module")
def scene(
    running_operator: Operator,
    hasty_operator: Operator,
    admin_ports: AdminPorts,
    audit: Audit,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Scene]:
    cluster = running_operator.cluster
    place = Place(cluster, "quiet")
    place.create()
    grant(cluster, USER, place.namespace)
    log: Path = tmp_path_factory.mktemp("quiet") / "log"
    operator = Operator(
        cluster, admin_ports.url, log, USER, (place.namespace,), lease_namespace=place.namespace, before=OFTEN
    )
    eventually = Eventually(list, [(cluster, place.namespace)], [log])
    running_operator.pause()
    hasty_operator.pause()
    operator.start()
    try:
        made = Scene(place, operator, audit, eventually)
        place.apply("whole", **WHOLE)
        eventually(lambda: len(place.pods("whole")) == WHOLE["replicas"])
        made.ready_pods(admin_ports)
        eventually(place.reached("Ready", "True", "Ready", "whole"))
        yield made
    finally:
        operator.pause()
        place.delete()


def test_from_create_to_ready_it_takes_few_writes_however_often_the_pods_are_asked(
    scene: Scene, admin_ports: AdminPorts
) -> None:
    """Contract 9: at most one for each child, and eight."""
    mark = scene.audit.mark()
    scene.place.apply("fresh", **WHOLE)
    scene.eventually(lambda: len(scene.place.pods("fresh")) == WHOLE["replicas"])
    scene.start_pods(admin_ports, "fresh")
    scene.eventually(scene.place.reached("Ready", "True", "Ready", "fresh"))
    scene.eventually(scene.operator.idle)
    written = scene.written(mark)
    children = [one for one in written if one.resource not in ("inferenceservices", "events")]
    assert sorted(one.resource for one in children) == sorted(kind.plural for kind in KINDS)
    assert len(written) <= CREATE_TO_READY, written.told()
    scene.place.remove("fresh")


@pytest.mark.parametrize(
    ("kind", "what"),
    [*itertools.product(KINDS, ("edited", "unlabelled", "deleted"))],
    ids=lambda value: value.kind if isinstance(value, Resource) else value,
)
def test_a_child_that_somebody_changed_is_put_back_in_one_write(scene: Scene, kind: Resource, what: str) -> None:
    name, mark = scene.name(kind), scene.audit.mark()
    uid = scene.place.get(kind.plural, name)["metadata"]["uid"]
    change = {
        "edited": ("label", kind.plural, name, "app.kubernetes.io/part-of=somebody", "--overwrite"),
        "unlabelled": ("label", kind.plural, name, "app.kubernetes.io/managed-by-"),
        "deleted": ("delete", kind.plural, name),
    }
    scene.place.kubectl(*change[what])
    (fields,) = [desired_fields(child.body) for child in _wanted(scene.place) if child.resource is kind]

    def put_back() -> bool:
        found = scene.place.get(kind.plural, name)
        return owned_fields(found) == fields and (found["metadata"]["uid"] == uid) == (what != "deleted")

    scene.eventually(put_back)
    scene.eventually(scene.operator.idle)
    children = [one for one in scene.written(mark) if one.resource not in ("inferenceservices", "events")]
    assert [one.resource for one in children] == [kind.plural], scene.written(mark).told()


def _owner(found: Manifest) -> str:
    return str(found["metadata"]["ownerReferences"][0]["uid"])


def _wanted(place: Place) -> tuple[DesiredChild, ...]:
    """The children that the service wants, by the planner alone: nothing is newer than what it was made by."""
    wanted = desire(PlanInput(Service.of(place.get("gisvc", "whole")), INSTALLED))
    assert isinstance(wanted, Desired)
    return wanted.children


@pytest.fixture
def settled(scene: Scene, admin_ports: AdminPorts) -> Scene:
    """The scene with nothing left to write."""
    scene.eventually(scene.has_its_pods)
    scene.ready_pods(admin_ports)
    scene.eventually(scene.place.reached("Ready", "True", "Ready", "whole"))
    scene.resynced()
    return scene


def test_where_all_is_in_order_nothing_is_written(settled: Scene) -> None:
    """Contract 9: forced resyncs, labels on the service, another service that goes and comes, foreign fields, the same
    apply again, a restart, a kill.
    """
    place = settled.place
    mark = settled.audit.mark()
    settled.resynced()
    place.label("gisvc", "whole", {"team": "a"})
    place.annotate("service", "whole", {"example.com/owner": "me"})
    place.apply("whole", **WHOLE)
    place.apply("unrelated", suspend=True)
    settled.eventually(lambda: len(place.names("deployments")) == 2)
    place.remove("unrelated")
    place.apply("unrelated", suspend=True)
    settled.eventually(place.reached("Ready", "False", "Suspended", "unrelated"))
    settled.resynced()
    assert settled.operator.stop() == 0
    settled.operator.start()
    settled.eventually(settled.operator.idle)
    settled.operator.kill()
    settled.operator.start()
    settled.eventually(settled.operator.idle)
    settled.resynced()
    written = Trail(one for one in settled.written(mark) if one.name and not one.name.startswith("unrelated"))
    assert written == ()
