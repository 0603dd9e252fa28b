"""What every pod of ours says of its user and its rights."""

from __future__ import annotations

from graphpod_operator.render.owner import Body, Owner

USER = 65532


def pod_security(owner: Owner) -> Body:
    """The security context of a pod: the `restricted` profile, and our user where the cluster assigns none."""
    fixed = {"runAsUser": USER, "runAsGroup": USER, "fsGroup": USER} if owner.installed.fixed_user else {}
    return {
        "runAsNonRoot": True,
        **fixed,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
