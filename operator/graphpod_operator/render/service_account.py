"""The pods' ServiceAccount: it has no rights and no token, because the engine never calls the API server."""

from __future__ import annotations

from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.subject import Body, Subject


def service_account(subject: Subject) -> Body:
    """The ServiceAccount of a service."""
    return subject.child(Resource.ServiceAccount, subject.name, automountServiceAccountToken=False)
