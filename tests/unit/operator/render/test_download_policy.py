"""The NetworkPolicy of a Job that downloads: where it may go, and who reads its progress."""

import json
from typing import Any

import pytest

from graphpod_operator.api.spec import Spec
from graphpod_operator.install.network_access import ANYWHERE, Access, AccessInvalid
from graphpod_operator.intent.asked_downloads import downloads
from graphpod_operator.intent.source_hosts import source_hosts
from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.download_policy import download_policy
from tests.unit.operator.downloads import DOWNLOAD, claim, downloading, ends, the_job
from tests.unit.operator.objects import NAMESPACE
from tests.unit.operator.world import World

OPERATOR = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "graphpod-system"}}}
ACCESS = Access(admin=(OPERATOR,))


def egress(uri: str = "hf://org/name", access: Access = ACCESS, **variables: str) -> list[dict[str, Any]]:
    """What is open beside DNS."""
    env = [{"name": name, "value": value} for name, value in variables.items()]
    written = {"model": {"uri": uri, "cache": {"claim": "shared"}}, "podTemplate": {"env": env}}
    spec = Spec.model_validate(written)
    (one,) = downloads("demo", written)
    made = download_policy("ns", one, "u", source_hosts(one.uri, "spec.model.uri", spec), access)["spec"]
    assert made["policyTypes"] == ["Ingress", "Egress"]
    assert made["podSelector"] == {"matchLabels": {"graphpod.dev/weights": one.folder}}
    dns, *rest = made["egress"]
    assert dns == {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
    assert made["ingress"] == [{"from": [OPERATOR], "ports": [{"port": "admin", "protocol": "TCP"}]}]
    return rest


def to_the_world(*ports: int) -> dict[str, Any]:
    return {"to": [*ANYWHERE], "ports": [{"port": port, "protocol": "TCP"} for port in ports]}


def inside(peer: dict[str, Any]) -> dict[str, Any]:
    return {"to": [peer], "ports": [{"protocol": "TCP"}]}


def place(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


@pytest.mark.parametrize(
    ("uri", "variables", "rest"),
    [
        ("hf://org/name", {}, [to_the_world(443)]),
        ("oci://reg.example:5000/a:b", {}, [to_the_world(443, 5000)]),
        ("hf://org/name", {"HTTPS_PROXY": "http://proxy.example:3128"}, [to_the_world(443, 3128)]),
        ("s3://m1/x", {"AWS_ENDPOINT_URL": "http://minio.team.svc:9000"}, [to_the_world(443), inside(place("team"))]),
        ("s3://m1/x", {"AWS_ENDPOINT_URL": "http://m.team.svc.k8s.local"}, [to_the_world(443), inside(place("team"))]),
        ("hf://org/name", {"HF_ENDPOINT": "http://hub"}, [to_the_world(443), inside({"podSelector": {}})]),
        ("hf://org/name", {"HF_ENDPOINT": "https://hub.co:70000"}, [to_the_world(443)]),
    ],
)  # fmt: skip
def test_it_opens_the_ports_and_the_services_that_a_download_names(
    uri: str, variables: dict[str, str], rest: list[dict[str, Any]]
) -> None:
    assert egress(uri, **variables) == rest


def test_the_installer_says_where_else_downloads_go() -> None:
    proxy = {"ipBlock": {"cidr": "10.0.0.7/32"}}
    told = {"admin": [OPERATOR], "downloads": {"to": [proxy], "ports": [3128]}}
    only = egress(access=Access.read(json.dumps(told)))
    assert only == [{"to": [proxy], "ports": [{"port": port, "protocol": "TCP"} for port in (443, 3128)]}]
    told["downloads"] = {"to": [], "ports": []}
    assert egress(access=Access.read(json.dumps(told)), HF_ENDPOINT="http://hub") == [inside({"podSelector": {}})]
    assert Access.read(json.dumps({"admin": [OPERATOR]})) == ACCESS


WRONG = ({"to": [{}]}, {"ports": [0]}, {"ports": ["443"]}, {"ports": [True]}, {"to": "*"}, [])


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_place_is_refused(wrong: Any) -> None:
    with pytest.raises(AccessInvalid, match="downloads"):
        Access.read(json.dumps({"admin": [OPERATOR], "downloads": wrong}))


async def test_a_job_gets_its_policy_once_and_takes_it_along(world: World) -> None:
    place = Resource.NetworkPolicy, NAMESPACE, DOWNLOAD.job
    world.reconciler = world.make_reconciler(access=ACCESS)
    world.cluster.put(Resource.PersistentVolumeClaim, claim())
    await downloading(world)
    await world.settle()
    (owner,) = world.cluster.objects[place]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Job", the_job(world)["metadata"]["uid"])
    assert world.cluster.writes.count(("NetworkPolicy", DOWNLOAD.job)) == 1
    world.informer.deleted(Resource.NetworkPolicy, world.cluster.objects.pop(place))
    await world.settle()
    assert place in world.cluster.objects, "somebody deleted it"
    await ends(world, "Complete", {"code": 0, "phase": "Complete"})
    assert (Resource.Job, NAMESPACE, DOWNLOAD.job) not in world.cluster.objects, "the cluster removes what it owns"
