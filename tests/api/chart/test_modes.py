"""Both ways to give the operator its rights: the whole cluster, or the namespaces that are named.

In each the operator runs as the chart's ServiceAccount, and the audit log tells what it asked for: nothing is refused
to it, and nothing is granted that it does not use (verb, resource and scope).
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed import Cluster
from testbed.binaries.foreign import Foreign
from tests.api.chart.conftest import ONE_HELM
from tests.api.chart.release import DEPLOYMENT, Release
from tests.api.operator.downloads import jobs
from tests.audit import Audit, Right
from tests.crd import drop_crd
from tests.eventually import Eventually
from tests.places import Place

Words = set[tuple[str, str, str]]
"""(verb, group, resource)."""

READS = ("list", "watch")
OPTIONAL = {
    True: ("prometheusUrl=http://prometheus.monitoring.svc:9090",),
    False: tuple(
        f"optionalKinds.{kind}=false" for kind in ("podMonitors", "scaledObjects", "httpRoutes", "leaderWorkerSets")
    ),
}
"""The chart's values with the kinds of others, and without."""
ASKING: dict[bool, dict[str, Any]] = {
    True: {"monitoring": {"enabled": True}, "networking": {"route": {"parentRefs": [{"name": "edge"}]}}},
    False: {},
}
SCALERS = (("HPA", "horizontalpodautoscalers"), ("KEDA", "scaledobjects"))
LEASES = ("coordination.k8s.io", "leases")
EVERYTHING = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: everything}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
"""


def granted(cluster: Cluster, kind: str, *where: str, name: str = DEPLOYMENT) -> Words:
    """What the rendered (Cluster)Role allows, but the right to create what is applied: such an apply is one request,
    a patch, and the right to create is checked with it.
    """
    rules = json.loads(cluster.kubectl("get", kind, name, *where, "-o", "json"))["rules"]
    found = {
        (verb, group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    return found - {("create", group, resource) for verb, group, resource in found if verb == "patch"}


def words(rights: set[Right], namespace: str | None = None) -> Words:
    """Without their scope, or those of one scope."""
    return {(one.verb, one.group, one.resource) for one in rights if namespace in (None, one.namespace)}


def used_up(used: Callable[[], Words], allowed: Words) -> Callable[[], bool]:
    """A check: nothing that is granted is left unused."""

    def check() -> bool:
        assert not allowed - used(), f"granted and not used: {sorted(allowed - used())}"
        return True

    return check


@pytest.fixture
def served(cluster: Cluster) -> Iterator[None]:
    """The cluster has the CRDs of the optional kinds."""
    for foreign in Foreign:
        cluster.kubectl("apply", "--server-side", "-f", str(foreign.manifest()))
    yield
    for foreign in Foreign:
        drop_crd(cluster, foreign.crd)


@pytest.fixture
def with_optional(request: pytest.FixtureRequest, helm: Path) -> bool:
    """Whether the optional kinds are served and granted: each mode with one helm, and without them with the other."""
    wanted: bool = helm.parent.name.partition("-")[0] == request.param
    if wanted:
        request.getfixturevalue("served")
    return wanted


def _makes(name: str, place: Place) -> list[str]:
    """The kinds of what makes the pods of a service."""
    selector = f"graphpod.dev/inferenceservice={name}"
    return [kind for kind in ("deployments", "leaderworkersets") if place.names(kind, selector)]


def work_in(place: Place, eventually: Eventually, optional: bool = False) -> None:
    """A service that gets its children, loses one to somebody, gets autoscalers, then a transition that is told by an
    event, then a download that is given up, then more configurations than are kept, and loses what it is not to have
    any more.
    """
    place.apply(replicas=2, **ASKING[optional])
    eventually(place.reached("WorkloadAvailable", "False", "Starting"))
    place.drop("service", "demo")
    eventually(lambda: place.names("services"))
    for provider, kind in SCALERS[: 1 + optional]:
        place.apply(replicas=2, autoscaling={"max": 3, "target": "4", "provider": provider}, **ASKING[optional])
        eventually(lambda kind=kind: place.names(kind))
    place.apply("fetched", model={"uri": "hf://org/name", "cache": {"size": "1Gi"}})
    eventually(lambda: jobs(place))
    place.remove("fetched")
    eventually(lambda: not jobs(place))
    if optional:
        eventually(lambda: place.names("podmonitors") and place.names("httproutes"))
        for nodes, kind in ((1, "deployments"), (2, "leaderworkersets"), (1, "deployments")):
            spread = {"pipeline": 2, "nodes": nodes}
            place.apply("spread", parallelism=spread, rollout={"strategy": "Replace"})
            eventually(lambda kind=kind: _makes("spread", place) == [kind])
    for size in range(1, 6):
        place.apply(suspend=True, engine={"maxBatch": size})
        eventually(place.reached("Ready", "False", "Suspended"))


@pytest.mark.parametrize("with_optional", ["helm4"], indirect=True, ids=["optional kinds with helm 4"])
def test_of_the_whole_cluster_it_uses_every_right_and_lacks_none(
    release: Release,
    audit: Audit,
    make_place: Callable[..., Place],
    with_optional: bool,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    place, mark = make_place(release.cluster), audit.mark()
    release.install(*OPTIONAL[with_optional])
    with release.operator(tmp_path, eventually):
        work_in(place, eventually, with_optional)
        own = granted(release.cluster, "role", "-n", release.namespace, name=f"{DEPLOYMENT}-lease")
        assert own == {(verb, *LEASES) for verb in ("get", "create", "update")}
        eventually(used_up(lambda: words(audit.since(mark).by(release.account).rights(), release.namespace), own))
    release.install(*OPTIONAL[with_optional], "networkPolicy.enabled=false")
    with release.operator(tmp_path, eventually):
        allowed = granted(release.cluster, "clusterrole")
        groups = {group for _, group, _ in allowed}
        assert ({"monitoring.coreos.com", "keda.sh", "gateway.networking.k8s.io"} <= groups) is with_optional
        eventually(used_up(lambda: words(audit.since(mark).by(release.account).rights()), allowed))
    asked = audit.since(mark).by(release.account)
    assert asked.forbidden() == ()
    scopes = {one.namespace for one in asked.rights() if one.verb not in READS and one.resource != "leases"}
    assert scopes == {place.namespace}
    assert {one.namespace for one in asked.rights() if one.verb == "watch"} == {""}
    assert {one.namespace for one in asked.rights() if one.verb == "list"} == {"", place.namespace}, "before deletes"


@pytest.mark.parametrize("with_optional", ["helm3"], indirect=True, ids=["optional kinds with helm 3"])
def test_of_named_namespaces_it_uses_every_right_there_and_none_elsewhere(
    release: Release,
    audit: Audit,
    make_place: Callable[..., Place],
    with_optional: bool,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    red, blue, green = (make_place(release.cluster) for _ in range(3))
    mark = audit.mark()
    settings = (f"watchNamespaces={{{red.namespace},{blue.namespace}}}", *OPTIONAL[with_optional])
    release.install(*settings)
    assert DEPLOYMENT not in release.cluster.kubectl("get", "clusterroles,clusterrolebindings", "-o", "name")
    with release.operator(tmp_path, eventually):
        green.apply()
        for place in (red, blue):
            work_in(place, eventually, with_optional)
    release.install(*settings, "networkPolicy.enabled=false")
    with release.operator(tmp_path, eventually):
        for place in (red, blue):
            allowed = granted(release.cluster, "role", "-n", place.namespace)
            where = place.namespace
            used = lambda where=where: words(audit.since(mark).by(release.account).rights(), where)  # noqa: E731
            eventually(used_up(used, allowed))
        assert green.status() == {}, "a service in a namespace that was not named"
    asked = audit.since(mark).by(release.account)
    assert asked.forbidden() == ()
    elsewhere = {one for one in asked.rights() if one.namespace not in (red.namespace, blue.namespace)}
    assert {(one.group, one.resource, one.namespace) for one in elsewhere} == {(*LEASES, release.namespace)}
    for elsewhere in (green.namespace, release.namespace):
        rights = release.cluster.kubectl("auth", "can-i", "--list", "-n", elsewhere, f"--as={release.account}")
        assert "graphpod.dev" not in rights
        assert "deployments" not in rights


@pytest.mark.parametrize("helm", ONE_HELM, indirect=True)
def test_two_releases_with_namespaces_of_their_own_live_side_by_side(
    make_release: Callable[..., Release], make_place: Callable[..., Place], tmp_path: Path, eventually: Eventually
) -> None:
    one, other = make_release("one", "team-one"), make_release("other", "team-other")
    red, blue = make_place(one.cluster), make_place(one.cluster)
    one.install(f"watchNamespaces={{{red.namespace}}}")
    other.install(f"watchNamespaces={{{blue.namespace}}}", "crds.enabled=false")
    with one.operator(tmp_path, eventually), other.operator(tmp_path, eventually):
        for place in (red, blue):
            work_in(place, eventually)
    writers = Audit(one.cluster.audit_log).since().by(one.account, other.account)
    assert {found.user for found in writers.of(red.namespace).writes()} == {one.account}
    assert {found.user for found in writers.of(blue.namespace).writes()} == {other.account}


@pytest.mark.parametrize("helm", ONE_HELM, indirect=True)
def test_a_release_that_would_meet_another_is_refused_before_it_writes_anything(
    make_release: Callable[..., Release], make_place: Callable[..., Place]
) -> None:
    one, other = make_release("one", "team-one"), make_release("other", "team-other")
    red, blue = (make_place(one.cluster).namespace for _ in range(2))
    mine, its = f"watchNamespaces={{{red}}}", f"watchNamespaces={{{blue}}}"
    one.install(mine)
    said = other.refused(its)
    assert "belongs to release one in namespace team-one" in said
    assert "crds.enabled=false" in said
    for scope in ([mine], []):
        said = other.refused("crds.enabled=false", *scope)
        assert f"release one in namespace team-one already manages namespace {red}" in said
    one.install()
    whole = "release one in namespace team-one already manages the whole cluster"
    assert whole in other.refused(its, "crds.enabled=false")
    its_own = ("-A", "-l", "app.kubernetes.io/instance=other", "-o", "name")
    left = other.cluster.kubectl("get", "roles,deployments,serviceaccounts", *its_own)
    assert left == ""


@pytest.mark.parametrize("helm", ONE_HELM, indirect=True)
def test_an_installer_with_rights_in_one_namespace_installs_there(
    make_release: Callable[..., Release], make_place: Callable[..., Place]
) -> None:
    """A team's own admin, once somebody brought the CRD: the look for other releases is more than they may do."""
    make_release("crd", "team-crd").install("watchNamespaces={default}")
    place = make_place(make_release().cluster)
    place.kubectl("apply", "-f", "-", input=EVERYTHING)
    place.kubectl("create", "rolebinding", "team", "--role=everything", "--user=user1")
    team = replace(make_release("team", place.namespace), user="user1")
    settings = (f"watchNamespaces={{{place.namespace}}}", "crds.enabled=false")
    assert 'cannot get resource "clusterroles"' in team.refused(*settings)
    team.install(*settings, "checkOtherReleases=false")
    assert team.cluster.kubectl("get", "deployment", DEPLOYMENT, "-n", place.namespace, "-o", "name")
