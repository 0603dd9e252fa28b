"""The pods' ServiceAccount: it has no rights and no token, because the engine never calls the API server."""

from __future__ import annotations

from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.owner import Body, Owner


def service_account(owner: Owner) -> Body:
    """The ServiceAccount of a service."""
    return owner.child(Resource.ServiceAccount, owner.name, automountServiceAccountToken=False)
