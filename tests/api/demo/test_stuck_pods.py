"""Pods that the API server does not let in are told by the demo in its words, at once."""

from collections.abc import Callable

import pytest
import yaml

from demo.stuck_pods import trouble
from testbed import Cluster
from tests.eventually import Eventually
from tests.places import Place

LABELS = {"app": "careless"}
POD = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]}}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "careless", "labels": LABELS},
    "spec": {"selector": {"matchLabels": LABELS}, "template": POD},
}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "careless", "labels": LABELS},
    "spec": {"template": {**POD, "spec": {**POD["spec"], "restartPolicy": "Never"}}},
}


@pytest.mark.parametrize("owner", [DEPLOYMENT, JOB], ids=["Deployment", "Job"])
def test_pod_security_speaks_through_the_event_of_who_makes_the_pod(
    owner: dict, api_cluster: Cluster, make_place: Callable[..., Place], eventually: Eventually
) -> None:
    place = make_place(api_cluster)
    assert trouble(api_cluster, place.namespace, "app=careless") is None
    place.kubectl("apply", "-f", "-", input=yaml.safe_dump(owner))
    told = eventually(lambda: trouble(api_cluster, place.namespace, "app=careless"))
    assert told.startswith("the API server refuses the pod:")
    assert 'violates PodSecurity "restricted:latest"' in told
    assert trouble(api_cluster, place.namespace, "app=somebody-else") is None
