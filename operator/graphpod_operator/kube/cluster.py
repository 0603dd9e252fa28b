"""The API server as the operator sees it: seven methods over plain dicts, and the errors they raise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from graphpod_operator.kube.field_ownership import FIELD_MANAGER
from graphpod_operator.kube.resources import Resource

Raw = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """What was kept of the objects of one kind, as they were at `version`."""

    items: tuple[T, ...]
    version: int


class ApiError(Exception):
    """The API server's answer was not the one asked for. `status` is the HTTP status, 0 when there was no answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Unavailable(ApiError):
    """No answer, or one that says to come back later (429, 5xx)."""


class Unreached(Unavailable):
    """The API server itself did not answer: no connection, or one that broke before the answer."""


class TimedOut(Unavailable):
    """The request was sent, and no answer came in time: the API server may be at it still."""


class Conflict(ApiError):
    """409: another writer owns a field, or the object is no longer the one that was meant."""


class AlreadyExists(Conflict):
    """409: an object of this name exists. Others than that are to be tried again, as of two creates that count against
    one ResourceQuota.
    """


class ServerRefused(ApiError):
    """The API server will not do it as asked, now or later; the message is the server's."""


class Expired(ApiError):
    """410: what happened since a version, or the rest of a list, is not remembered any more."""


class Terminating(ServerRefused):
    """The namespace is being deleted or gone, so nothing can be made in it any more."""


class NotLeading(ApiError):
    """A write that was not sent: this operator has not renewed its Lease for too long, so another may lead."""


class Cluster(Protocol):
    """The seven-method port. Every method may raise Unavailable or Refused, a list also Expired, and a write Conflict
    and NotLeading.
    """

    async def get(self, resource: Resource, namespace: str, name: str) -> Raw | None:
        """The live object, or None."""
        ...

    async def list(
        self, resource: Resource, namespace: str | None, selector: str, keep: Callable[[Raw], T]
    ) -> Listing[T]:
        """What `keep` makes of every object of a kind that a label selector matches, in one namespace or (None) in all.
        No more bodies than a page has are held at a time.
        """
        ...

    async def apply(self, resource: Resource, body: Raw, *, force: bool, manager: str = FIELD_MANAGER) -> Raw:
        """Server-side apply as this field manager; the object as stored."""
        ...

    async def apply_status(self, body: Raw) -> Raw:
        """Server-side apply of the status of an InferenceService; the object as stored."""
        ...

    async def delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        """Delete exactly the object with this uid; one that is gone already is no error."""
        ...

    async def create(self, resource: Resource, body: Raw) -> bool:
        """Create an object that is never read: whether it was made. One of that name is left as it is."""
        ...

    async def event(self, body: Raw) -> None:
        """Create a core/v1 Event."""
        ...
