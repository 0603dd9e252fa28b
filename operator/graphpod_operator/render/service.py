"""The Service in front of the pods."""

from __future__ import annotations

from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.owner import Body, Owner

PORT = 80
API_PATH = "/v1"
"""Below it is the OpenAI API, and nothing else."""


def service(owner: Owner) -> Body:
    """A ClusterIP Service: port 80 to the pods' `http` port, over IPv4 and IPv6 where the cluster has both."""
    return owner.child(
        Resource.Service,
        owner.name,
        spec={
            "type": "ClusterIP",
            "ipFamilyPolicy": "PreferDualStack",
            "selector": owner.selector,
            "ports": [{"name": "http", "port": PORT, "protocol": "TCP", "targetPort": "http"}],
        },
    )


def url(name: str, namespace: str) -> str:
    """Address of the OpenAI API inside the cluster."""
    return f"http://{name}.{namespace}.svc{API_PATH}"
