"""The Service in front of the pods."""

from __future__ import annotations

from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.subject import Body, Subject

PORT = 80
API_PATH = "/v1"
"""Below it is the OpenAI API, and nothing else."""


def service(subject: Subject) -> Body:
    """A ClusterIP Service: port 80 to the pods' `http` port, over IPv4 and IPv6 where the cluster has both."""
    return subject.child(
        Resource.Service,
        subject.name,
        spec={
            "type": "ClusterIP",
            "ipFamilyPolicy": "PreferDualStack",
            "selector": subject.selector,
            "ports": [{"name": "http", "port": PORT, "protocol": "TCP", "targetPort": "http"}],
        },
    )


def url(name: str, namespace: str) -> str:
    """Address of the OpenAI API inside the cluster."""
    return f"http://{name}.{namespace}.svc{API_PATH}"
