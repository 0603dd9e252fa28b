"""A newer operator beside services that run: other rules, another default image, another form of the pods."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.api.operator.explained import explained
from tests.api.operator.pods import AdminPorts
from tests.api.operator.process import USER, Operator, grant
from tests.audit import Audit
from tests.eventually import Eventually
from tests.places import Place

NEWER = "graphpod.dev/runtime:newer"
NEXT_VERSION = """
import dataclasses
from graphpod_operator.plan import desired_children
from graphpod_operator.render.pod import template
resolve = desired_children.resolve
def next_rules(features, request):
    made = resolve(features, dataclasses.replace(request, decode_sizes=(1, 2, 3)))
    told = tuple(dataclasses.replace(row, because="said otherwise", hint="and hinted") for row in made.decisions)
    return dataclasses.replace(made, decisions=told, resolver_revision="next")
desired_children.resolve = next_rules
template.EXIT_SECONDS = 11
"""
"""What a process of the next version has otherwise, beside its image: the rules, their words, the form of the pods."""


@dataclass(frozen=True)
class Versions:
    """Two operators, one of which runs."""

    old: Operator
    new: Operator
    eventually: Eventually

    def upgrade(self) -> None:
        assert self.old.stop() == 0
        self.new.start()
        self.eventually(self.new.idle)

    def take_back(self) -> None:
        assert self.new.stop() == 0
        self.old.start()
        self.eventually(self.old.idle)


@pytest.fixture
def versions(operator: Operator, admin_ports: AdminPorts, tmp_path: Path, eventually: Eventually) -> Iterator[Versions]:
    new = Operator(operator.cluster, admin_ports.url, tmp_path / "log", before=NEXT_VERSION, image=NEWER)
    eventually.logs.append(new.log)
    made = Versions(operator, new, eventually)
    yield made
    new.pause()
    assert "Traceback" not in new.log.read_text()


def what_runs(place: Place) -> tuple[int, list[str], list[str]]:
    """Generation of the Deployment, its ReplicaSets, and the uids of the pods."""
    generation = place.get("deployment", "demo")["metadata"]["generation"]
    return generation, sorted(replica_sets(place)), sorted(pod["metadata"]["uid"] for pod in place.pods())


def replica_sets(place: Place) -> list[str]:
    return place.names("replicasets")


@pytest.mark.parametrize("wiped", [False, True], ids=["as it is", "without a status"])
def test_an_upgrade_changes_nothing_that_runs_and_adopting_it_rolls_once(
    versions: Versions, quiet: Place, audit: Audit, settled: Callable[[], None], eventually: Eventually, wiped: bool
) -> None:
    before = what_runs(quiet)
    mark = audit.mark()
    versions.old.stop()
    if wiped:
        nothing = '[{"op": "remove", "path": "/status"}]'
        quiet.kubectl("patch", "gisvc", "demo", "--subresource=status", "--type=json", "-p", nothing)
    versions.new.start()
    eventually(versions.new.idle)
    engine = eventually(quiet.reached("EngineUpdateAvailable", "True", "NewEngine"))
    eventually(quiet.reached("PolicyUpdateAvailable", "True", "NewPolicy"))
    assert NEWER in engine
    assert what_runs(quiet) == before
    written = audit.since(mark).by(USER).of(quiet.namespace).writes()
    assert {one.kind for one in written} <= {"inferenceservices/status", "events"}

    told = explained(quiet, "demo").stdout
    assert f"  EngineUpdateAvailable: {engine.partition('; kubectl')[0]}" in told.splitlines()
    (adopt,) = [line.split() for line in told.splitlines() if line.strip().startswith("kubectl annotate")]
    quiet.cluster.kubectl(*adopt[1:])
    eventually(quiet.reached("EngineUpdateAvailable", "False", "UpToDate"))
    eventually(lambda: what_runs(quiet)[2] != before[2])
    settled_on(quiet, eventually)
    generation, sets, _ = what_runs(quiet)
    assert (generation, len(sets)) == (before[0] + 1, len(before[1]) + 1)
    image = quiet.get("deployment", "demo")["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == NEWER
    adopted = what_runs(quiet)[:2]
    versions.take_back()
    assert what_runs(quiet)[:2] == adopted, "an operator that is taken back restarts nobody"


def test_the_memory_of_a_service_deleted_under_a_newer_operator_restarts_nobody(
    versions: Versions, quiet: Place, eventually: Eventually
) -> None:
    template = quiet.get("deployment", "demo")["spec"]["template"]
    (memory,) = quiet.names("controllerrevisions")
    before = what_runs(quiet)
    versions.upgrade()
    quiet.kubectl("delete", memory)
    eventually(lambda: quiet.names("controllerrevisions") == [memory])
    eventually(versions.new.idle)
    assert quiet.get("deployment", "demo")["spec"]["template"] == template
    assert what_runs(quiet) == before
    eventually(quiet.reached("EngineUpdateAvailable", "True", "NewEngine"))


def test_a_service_made_anew_without_a_status_takes_its_kept_children_and_restarts_nobody(
    versions: Versions, quiet: Place, audit: Audit, eventually: Eventually
) -> None:
    """As docs/operations/backup.md tells it. Until its user gives it the children, they are somebody else's."""
    before = what_runs(quiet)
    template = quiet.get("deployment", "demo")["spec"]["template"]
    kinds = "deployment,service,serviceaccount,configmap,controllerrevision"
    kept = quiet.names(kinds)
    quiet.kubectl("delete", "gisvc", "demo", "--cascade=orphan")
    versions.upgrade()
    mark = audit.mark()
    quiet.apply()
    eventually(quiet.reached("Accepted", "False", "OwnerMissing"))
    uid = quiet.get("gisvc", "demo")["metadata"]["uid"]
    owner = {"apiVersion": "graphpod.dev/v1alpha1", "kind": "InferenceService", "name": "demo"}
    owners = {"metadata": {"ownerReferences": [{**owner, "uid": uid, "controller": True}]}}
    for name in kept:
        quiet.kubectl("patch", name, "--type=merge", "-p", json.dumps(owners))
    eventually(quiet.reached("Accepted", "True", "Accepted"))
    eventually(quiet.reached("EngineUpdateAvailable", "True", "NewEngine"))
    assert quiet.get("deployment", "demo")["spec"]["template"] == template
    assert what_runs(quiet) == before
    assert quiet.names(kinds) == kept
    told = quiet.kubectl("get", "events", "-o=jsonpath={.items[*].reason}").split()
    assert "PutBack" not in told
    written = [one.kind for one in audit.since(mark).by(USER).of(quiet.namespace).writes()]
    assert set(written) <= {"inferenceservices/status", "events"}


def settled_on(place: Place, eventually: Eventually) -> None:
    """The Deployment's controller has seen the last change."""

    def seen() -> bool:
        found = place.get("deployment", "demo")
        seen: bool = found["status"]["observedGeneration"] == found["metadata"]["generation"]
        return seen

    eventually(seen)


def test_a_service_that_always_updates_gets_the_newer_pods_by_itself(
    versions: Versions, place: Place, eventually: Eventually
) -> None:
    place.apply(updates="Auto")
    eventually(place.reached("WorkloadAvailable", "False", "Starting"))
    versions.upgrade()

    def newer() -> bool:
        template = place.get("deployment", "demo")["spec"]["template"]
        return template["spec"]["containers"][0]["image"] == NEWER

    eventually(newer)
    assert place.condition("EngineUpdateAvailable")[:2] == ("False", "UpToDate")


def test_a_spec_applied_again_takes_its_replica_set_again_after_an_upgrade_too(
    versions: Versions, applied: Place, eventually: Eventually, settled: Callable[[], None]
) -> None:
    template = applied.get("deployment", "demo")["spec"]["template"]
    versions.upgrade()
    applied.apply(engine={"maxBatch": 2})
    eventually(lambda: len(replica_sets(applied)) == 2)
    applied.apply()
    eventually(lambda: applied.get("deployment", "demo")["spec"]["template"] == template)
    settled_on(applied, eventually)
    assert len(replica_sets(applied)) == 2


def test_a_rollout_taken_back_by_kubectl_is_put_back_and_told(
    applied: Place, eventually: Eventually, settled: Callable[[], None]
) -> None:
    applied.apply(engine={"maxBatch": 2})
    eventually(lambda: len(replica_sets(applied)) == 2)
    settled()
    template = applied.get("deployment", "demo")["spec"]["template"]
    applied.kubectl("rollout", "undo", "deployment/demo")
    told = '-o=jsonpath={.items[?(@.reason=="PutBack")].message}'
    message = eventually(lambda: applied.kubectl("get", "events", told) or None)
    assert "to roll back, apply its earlier spec again" in message
    eventually(lambda: applied.get("deployment", "demo")["spec"]["template"] == template)


def test_a_restart_by_kubectl_is_respected(applied: Place, eventually: Eventually, settled: Callable[[], None]) -> None:
    applied.kubectl("rollout", "restart", "deployment/demo")
    eventually(lambda: len(replica_sets(applied)) == 2)
    settled()
    annotations = applied.get("deployment", "demo")["spec"]["template"]["metadata"]["annotations"]
    assert "kubectl.kubernetes.io/restartedAt" in annotations


def test_fifty_edits_leave_at_most_four_configurations(
    operator: Operator, place: Place, admin_ports: AdminPorts, audit: Audit, tmp_path: Path, eventually: Eventually
) -> None:
    grant(place.cluster, "user1", place.namespace)
    # one of its own: fifty edits in some seconds are a reason for many writes of one status
    own = Operator(
        place.cluster, admin_ports.url, tmp_path / "log", "user1", (place.namespace,), lease_namespace=place.namespace
    )
    eventually.logs.append(own.log)
    operator.pause()
    try:
        own.start()
        for size in range(1, 51):
            place.apply(suspend=True, engine={"maxBatch": size})  # without pods each rollout is complete at once
            eventually(place.reached("Ready", "False", "Suspended"), every=0.05)
        eventually(lambda: few_are_left(place), timeout=60)
    finally:
        own.pause()
    writes = audit.since().by("user1").of(place.namespace).writes()
    assert len([one for one in writes if (one.verb, one.resource) == ("delete", "configmaps")]) >= 46
    volumes = place.get("deployment", "demo")["spec"]["template"]["spec"]["volumes"]
    assert f"configmap/{volumes[0]['configMap']['name']}" in place.names("configmap")


def few_are_left(place: Place) -> bool:
    left = json.loads(place.kubectl("get", "configmaps,controllerrevisions", "-o", "json"))["items"]
    kinds = [item["kind"] for item in left if "ownerReferences" in item["metadata"]]
    assert kinds.count("ConfigMap") <= 4, kinds
    return kinds.count("ControllerRevision") <= 3
