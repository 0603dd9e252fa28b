"""What a request asks of a Kubernetes API server, read off its method, path and query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from stubs.faults.fault import FaultError


class Verb(StrEnum):
    """The API server's own verbs, as its audit log says them; `other` is what names no resource."""

    GET = "get"
    LIST = "list"
    WATCH = "watch"
    CREATE = "create"
    UPDATE = "update"
    PATCH = "patch"
    DELETE = "delete"
    DELETE_ALL = "deletecollection"
    OTHER = "other"


WRITES = frozenset({Verb.CREATE, Verb.UPDATE, Verb.PATCH, Verb.DELETE, Verb.DELETE_ALL})
_OF_ONE = {"GET": Verb.GET, "PUT": Verb.UPDATE, "PATCH": Verb.PATCH, "DELETE": Verb.DELETE, "POST": Verb.CREATE}
_OF_MANY = {"GET": Verb.LIST, "POST": Verb.CREATE, "DELETE": Verb.DELETE_ALL}


@dataclass(frozen=True, slots=True)
class Call:
    """One request. What it does not name is empty."""

    verb: Verb
    path: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    user_agent: str = ""


def read(method: str, path: str, query: Mapping[str, str], user_agent: str = "") -> Call:
    """The call behind a request; source: `RequestInfoFactory` of k8s.io/apiserver."""
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"] and len(parts) > 2:
        group, rest = "", parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 3:
        group, rest = parts[1], parts[3:]
    else:
        return Call(Verb.OTHER, path, user_agent=user_agent)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    verb = (_OF_ONE if name else _OF_MANY).get(method, Verb.OTHER)
    if method == "GET" and query.get("watch", "") in ("1", "t", "true", "True"):
        verb = Verb.WATCH
    subresource = "/".join(rest[2:])
    return Call(verb, path, group, rest[0], subresource, namespace, name, user_agent)


@dataclass(frozen=True, slots=True)
class Which:
    """The calls a fault is about: all that agree with every field that is given.

    `user_agent` is a part of the header; `subresource` "" means the object itself, and not given either.
    """

    verbs: frozenset[Verb] = frozenset()
    group: str | None = None
    resource: str | None = None
    subresource: str | None = None
    namespace: str | None = None
    name: str | None = None
    user_agent: str | None = None

    def __post_init__(self) -> None:
        if unknown := self.verbs - frozenset(Verb):
            raise FaultError(f"no verb {', '.join(sorted(unknown))}; there are {', '.join(Verb)}")

    def matches(self, call: Call, /) -> bool:
        named = ("group", "resource", "subresource", "namespace", "name")
        return (
            (not self.verbs or call.verb in self.verbs)
            and all(getattr(self, field) in (None, getattr(call, field)) for field in named)
            and (self.user_agent is None or self.user_agent in call.user_agent)
        )
