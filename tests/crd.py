"""CRDs that come and go: ours on a cluster that has no chart, and any that a test is done with."""

import json

from graphpod_operator.schema import crd
from testbed.cluster import Cluster
from testbed.control.api import NotThere
from tests.eventually import Eventually

NAME = "inferenceservices.graphpod.dev"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GONE_LIMIT = 180.0
"""s. Usual is one; where something of the kind is left, the API server looks again for 60 and then starts anew."""


def serve_crd(cluster: Cluster) -> None:
    """Applied, and served once this returns."""
    cluster.kubectl("apply", "--server-side", "-f", "-", input=crd.render())
    wait_served(cluster)


def wait_served(cluster: Cluster) -> None:
    """Until the API server answers for it."""

    def established() -> bool:
        """Not `kubectl wait`, which fails where the conditions are not written yet."""
        status = cluster.read(f"{CRDS}/{NAME}").get("status") or {}
        found = {one["type"]: one["status"] for one in status.get("conditions") or []}
        return found.get("Established") == "True"

    Eventually(lambda: [cluster])(established)


def drop_crd(cluster: Cluster, name: str = NAME) -> None:
    """Gone, and all of its kind, once this returns; one that stays is shown with what the API server says about it."""
    cluster.delete(f"{CRDS}/{name}")

    def gone() -> bool:
        try:
            found = cluster.read(f"{CRDS}/{name}")
        except NotThere:
            return True
        raise AssertionError(f"{name} stays: {json.dumps([found['metadata'], found['status']['conditions']])}")

    Eventually(lambda: [cluster])(gone, timeout=GONE_LIMIT)
