"""Our CRD on a cluster that has no chart."""

import json

from graphpod_operator import crd
from testbed.cluster import Cluster
from tests.eventually import Eventually

NAME = "inferenceservices.graphpod.dev"


def serve_crd(cluster: Cluster) -> None:
    """Applied, and served once this returns."""
    cluster.kubectl("apply", "--server-side", "-f", "-", input=crd.render())
    wait_served(cluster)


def wait_served(cluster: Cluster) -> None:
    """Until the API server answers for it."""

    def established() -> bool:
        """Not `kubectl wait`, which fails where the conditions are not written yet."""
        status = json.loads(cluster.kubectl("get", "crd", NAME, "-o", "json")).get("status") or {}
        found = {one["type"]: one["status"] for one in status.get("conditions") or []}
        return found.get("Established") == "True"

    Eventually(lambda: [cluster])(established)
