"""One object as it should be. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from graphpod_operator.kube.field_ownership import desired_fields, fingerprint, marked
from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.owner import Body

NO_VERSION = "1"
"""A resourceVersion that no stored object has: etcd's first write is its revision 2. An apply that names it makes an
object, and is answered with a 409 where there is one already, whoever made it: the API server compares versions only
with what is stored. Without it, an object made since the last look would be merged with ours.
"""


@dataclass(frozen=True, slots=True)
class DesiredChild:
    """One child as it should be; `owned` is the fingerprint its fields of ours must have."""

    resource: Resource
    namespace: str
    name: str
    body: Body
    owned: str

    @classmethod
    def of(cls, resource: Resource, body: Body) -> DesiredChild:
        """A child from the body to apply."""
        metadata = body["metadata"]
        return cls(resource, metadata["namespace"], metadata["name"], body, fingerprint(desired_fields(body)))

    def to_apply(self, uid: str | None) -> Body:
        """What to send: the body with the mark of its fields, for the object of this uid, or for none yet (None)."""
        annotated = marked(self.body, self.owned)
        meant = {"resourceVersion": NO_VERSION} if uid is None else {"uid": uid}
        return {**annotated, "metadata": {**annotated["metadata"], **meant}}

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.namespace}/{self.name}"
