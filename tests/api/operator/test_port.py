"""The seven-method port against a real API server: what it gives back, and which error a refusal becomes."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from graphpod_operator.cache.service import Service
from graphpod_operator.install.installation import Installation
from graphpod_operator.install.network_access import Access
from graphpod_operator.kube.client import PAGE, KubernetesCluster
from graphpod_operator.kube.cluster import Conflict, ServerRefused, Terminating, Unavailable
from graphpod_operator.kube.connection import connect
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from tests.api.operator.process import IMAGES
from tests.places import Place, service

ANSWERS: list[tuple[str, str]] = []


@pytest.fixture
def admin_kubeconfig(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # the client reads KUBECONFIG once, when it is imported
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(place.cluster.kubeconfig))
    yield
    ANSWERS.clear()


@pytest.fixture
async def port(admin_kubeconfig: None) -> AsyncIterator[KubernetesCluster]:
    wire = await connect(lambda code, method, seconds: ANSWERS.append((code, method)))
    yield KubernetesCluster(wire)
    await wire.close()


def config(place: Place, name: str = "c", **data: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": place.namespace, "labels": {"mine": "yes"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def test_what_is_applied_can_be_got_listed_and_deleted(place: Place, port: KubernetesCluster) -> None:
    stored = await port.apply(Resource.ConfigMap, config(place, a="1"), force=False)
    assert await port.get(Resource.ConfigMap, place.namespace, "c") == stored
    listing = await port.list(Resource.ConfigMap, place.namespace, "mine=yes", lambda raw: raw["metadata"]["uid"])
    assert listing.items == (stored["metadata"]["uid"],)
    assert listing.version >= int(stored["metadata"]["resourceVersion"])
    await port.delete(Resource.ConfigMap, place.namespace, "c", stored["metadata"]["uid"])
    assert await port.get(Resource.ConfigMap, place.namespace, "c") is None
    await port.delete(Resource.ConfigMap, place.namespace, "c", stored["metadata"]["uid"])
    assert ("201", "PATCH") in ANSWERS
    assert ("404", "GET") in ANSWERS


async def test_a_delete_means_one_uid(place: Place, port: KubernetesCluster) -> None:
    await port.apply(Resource.ConfigMap, config(place), force=False)
    with pytest.raises(Conflict):
        await port.delete(Resource.ConfigMap, place.namespace, "c", "another-uid")
    assert await port.get(Resource.ConfigMap, place.namespace, "c") is not None


async def test_an_apply_without_force_yields_to_another_writer(place: Place, port: KubernetesCluster) -> None:
    place.kubectl("create", "configmap", "c", "--from-literal=a=theirs")
    with pytest.raises(Conflict, match="conflict"):
        await port.apply(Resource.ConfigMap, config(place, a="ours"), force=False)
    stored = await port.apply(Resource.ConfigMap, config(place, a="ours"), force=True)
    assert stored["data"] == {"a": "ours"}


async def test_an_apply_of_a_child_that_is_to_be_made_takes_no_object_that_is_there(
    place: Place, port: KubernetesCluster
) -> None:
    """Each kind, made by somebody in the moment between our look and our apply."""
    stored = {"metadata": {"name": "demo", "namespace": place.namespace, "uid": "u", "resourceVersion": "1"}}
    spec = {"model": {"uri": "pvc://a/b"}, "replicas": 2, "autoscaling": {"min": 2, "max": 3, "target": 4}}
    planned = desire(
        PlanInput(
            Service.of({**stored, "spec": spec}),
            Installation(IMAGES, access=Access.read('{"admin": [{"podSelector": {}}]}')),
        )
    )
    assert isinstance(planned, Desired)
    assert len(planned.children) >= 8
    for wanted in planned.children:
        theirs = {key: value for key, value in wanted.body.items() if key != "metadata"}
        metadata = {"name": wanted.name, "labels": {"mine": "yes"}}
        place.kubectl("create", "-f", "-", input=json.dumps({**theirs, "metadata": metadata}))
        with pytest.raises(Conflict):
            await port.apply(wanted.resource, wanted.to_apply(None), force=False)
        found = await port.get(wanted.resource, place.namespace, wanted.name)
        assert found is not None
        assert "ownerReferences" not in found["metadata"]
        await port.delete(wanted.resource, place.namespace, wanted.name, found["metadata"]["uid"])
        made = await port.apply(wanted.resource, wanted.to_apply(None), force=False)
        assert made["metadata"]["uid"] != found["metadata"]["uid"]


async def test_an_apply_that_names_a_uid_never_makes_or_takes_another_object(
    place: Place, port: KubernetesCluster
) -> None:
    body = config(place)
    body["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    with pytest.raises(Conflict):
        await port.apply(Resource.ConfigMap, body, force=True)
    assert await port.get(Resource.ConfigMap, place.namespace, "c") is None


async def test_a_refusal_carries_the_servers_words(place: Place, port: KubernetesCluster) -> None:
    body = config(place)
    body["data"] = {"not/a/key": "x"}
    with pytest.raises(ServerRefused, match="a valid config key must consist of") as refused:
        await port.apply(Resource.ConfigMap, body, force=False)
    assert refused.value.status == 422


async def test_the_status_of_a_service_that_is_not_there_is_refused(place: Place, port: KubernetesCluster) -> None:
    body = service("nobody", {"namespace": place.namespace}) | {"status": {"observedGeneration": 1}}
    with pytest.raises(ServerRefused) as refused:
        await port.apply_status(body)
    assert refused.value.status == 404


async def test_nothing_can_be_made_in_a_namespace_that_is_gone(place: Place, port: KubernetesCluster) -> None:
    gone = config(place)
    gone["metadata"]["namespace"] = "never-was"
    with pytest.raises(Terminating):
        await port.apply(Resource.ConfigMap, gone, force=False)


async def test_a_list_longer_than_a_page_is_whole(place: Place, port: KubernetesCluster) -> None:
    names = [f"c{number}" for number in range(PAGE + 3)]
    items = [config(place, name) for name in names]
    place.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    listing = await port.list(Resource.ConfigMap, place.namespace, "mine=yes", lambda raw: raw["metadata"]["name"])
    assert set(listing.items) == set(names)


async def test_a_server_that_is_not_there_is_unavailable(
    place: Place, port: KubernetesCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port._wire._api.configuration, "host", "https://127.0.0.1:9")
    with pytest.raises(Unavailable, match="did not answer"):
        await port.get(Resource.ConfigMap, place.namespace, "c")
    assert ANSWERS[-1] == ("<error>", "GET")
