"""The API server's audit log as an oracle: who did what to which object, and what must never be seen there.

    mark = audit.mark()
    …
    assert audit.since(mark).by("operator").of(namespace).writes() == ()

A `Trail` is a tuple of requests in the order of the log. Each word on it narrows it down or asks it a question.
"""

import json
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from sys import intern
from typing import Any, NamedTuple

WRITES = ("create", "update", "patch", "delete", "deletecollection")
QUESTIONS = ("authorization.k8s.io", "authentication.k8s.io")
"""Groups whose creates store nothing: reviews of tokens and rights."""
ACCOUNTS = "system:serviceaccount:"
HEARTBEATS = ("leases", "nodes/status")
"""Written in a quiet cluster too: elections and kubelets."""
BLOCK = 1 << 20  # bytes of the log's end to look at first


class Right(NamedTuple):
    """What RBAC grants; namespace "" is the whole cluster, as in a list of all namespaces."""

    verb: str
    group: str
    resource: str  # with its subresource: deployments/scale
    namespace: str


class Thing(NamedTuple):
    """An object, or a subresource of it. A request for many objects has no name."""

    group: str
    resource: str  # with its subresource
    namespace: str
    name: str


class Term(NamedTuple):
    """A stretch of writes by one writer, without another's in between."""

    writer: str
    first: float  # s since the epoch
    last: float
    writes: int


@dataclass(frozen=True, slots=True)
class Request:
    """One request, once it was answered; a watch once it began."""

    at: float  # s since the epoch, when the server received it
    user: str
    pod: str  # that the user's token was made for; "" for people
    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    forbidden: bool  # by authorization; a 403 without it comes from admission
    dry_run: bool
    uri: str

    @property
    def kind(self) -> str:
        """The resource with its subresource, as RBAC names it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    @property
    def thing(self) -> Thing:
        return Thing(self.group, self.kind, self.namespace, self.name)

    @property
    def writer(self) -> str:
        """Two replicas of one Deployment are one user and two writers."""
        return f"{self.user} in {self.pod}" if self.pod else self.user

    @property
    def writes(self) -> bool:
        """Whether it is of a kind that changes stored objects; whether it did, its code says."""
        stores = self.group not in QUESTIONS and self.kind != "serviceaccounts/token"
        return self.verb in WRITES and bool(self.resource) and stores and not self.dry_run

    def __str__(self) -> str:
        clock = datetime.fromtimestamp(self.at, UTC).strftime("%H:%M:%S.%f")[:-3]
        where = "/".join(filter(None, (self.namespace, self.name)))
        what = f"{self.kind} {where}".strip() if self.resource else self.uri
        return f"{clock} {self.code} {self.writer.removeprefix(ACCOUNTS)}: {self.verb} {what}"


class Trail(tuple[Request, ...]):
    """Requests in the order of the log."""

    __slots__ = ()

    def by(self, *users: str) -> "Trail":
        return Trail(one for one in self if one.user in users)

    def of(self, namespace: str) -> "Trail":
        """Those inside a namespace, and those for the namespace itself."""
        return Trail(one for one in self if one.namespace == namespace)

    def writes(self) -> "Trail":
        """Those that change objects, refused ones included: a refused write in a loop is a hot loop too."""
        return Trail(one for one in self if one.writes)

    def steady(self) -> "Trail":
        """Without the heartbeats of a quiet cluster."""
        return Trail(one for one in self if one.kind not in HEARTBEATS)

    def conflicts(self) -> "Trail":
        return Trail(one for one in self if one.code == 409)

    def forbidden(self) -> "Trail":
        """Those that RBAC refused."""
        return Trail(one for one in self if one.forbidden)

    def rights(self) -> set[Right]:
        """The rights that were used: what was not refused, each with the narrowest scope that allows it."""
        return {
            Right(one.verb, one.group, one.kind, one.namespace) for one in self if one.resource and not one.forbidden
        }

    def hot(self, times: int, within: float) -> dict[Thing, int]:
        """Objects written more than `times` in some `within` seconds, with the greatest number of writes there."""
        written: dict[Thing, list[float]] = defaultdict(list)
        for one in self.writes():
            written[one.thing].append(one.at)
        most = {thing: _most(sorted(moments), within) for thing, moments in written.items()}
        return {thing: count for thing, count in most.items() if count > times}

    def contested(self) -> dict[Thing, set[str]]:
        """Objects with more than one writer, and who they are. Creates without a name may be of many: not counted."""
        writers: dict[Thing, set[str]] = defaultdict(set)
        for one in self.writes():
            if one.name:
                writers[one.thing].add(one.writer)
        return {thing: who for thing, who in writers.items() if len(who) > 1}

    def terms(self) -> list[Term]:
        """Who wrote when: with one leader at a time, each writer has one term, and nobody's lies in another's."""
        written = sorted(self.writes(), key=lambda one: one.at)
        stretches = [(writer, list(group)) for writer, group in groupby(written, key=lambda one: one.writer)]
        return [Term(writer, group[0].at, group[-1].at, len(group)) for writer, group in stretches]

    def told(self, longest: int = 60) -> str:
        """For people: the writes one by one, the newest last, then what was read, counted."""
        writes = self.writes()
        left_out = [f"… {len(writes) - longest} earlier writes …"] if len(writes) > longest else []
        reads = Counter(
            f"{one.code} {one.writer.removeprefix(ACCOUNTS)}: {one.verb} {one.kind or one.uri.partition('?')[0]}"
            for one in self
            if not one.writes
        )
        counted = [f"{count:>5} × {what}" for what, count in reads.most_common()]
        return "\n".join([*left_out, *map(str, writes[-longest:]), *counted])


class Audit:
    """One audit log, each line of which is read once however often it is asked."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read_to = 0  # bytes
        self._requests: list[Request] = []
        self._watches: set[str] = set()  # open ones: the log tells their begin and their end

    def mark(self) -> int:
        """A place in the log to look on from."""
        self._read()
        return len(self._requests)

    def since(self, mark: int = 0) -> Trail:
        """What was answered since a mark, or from the cluster's beginning."""
        self._read()
        return Trail(self._requests[mark:])

    def _read(self) -> None:
        with self._log.open("rb") as log:
            log.seek(self._read_to)
            for line in log:
                if not line.endswith(b"\n"):
                    break  # being written
                self._read_to += len(line)
                self._take(json.loads(line))

    def _take(self, line: dict[str, Any]) -> None:
        if line["stage"] == "ResponseStarted":
            self._watches.add(line["auditID"])
        elif line["auditID"] in self._watches:
            self._watches.remove(line["auditID"])
            return
        self._requests.append(request(line))


def recent(log: Path, seconds: float) -> Trail:
    """The last `seconds` of a log, without reading what lies before them."""
    since = time.time() - seconds
    with log.open("rb") as file:
        size = begin = file.seek(0, 2)
        length, lines = BLOCK, list[bytes]()
        while begin > 0 and not (lines and request(json.loads(lines[0])).at < since):
            begin, length = max(0, size - length), 2 * length
            file.seek(begin)
            lines = file.read(size - begin).splitlines(keepends=True)
            lines = lines[1:] if begin else lines  # the first is cut, unless it is the log's
    found = (request(json.loads(line)) for line in lines if line.endswith(b"\n"))
    return Trail(one for one in found if one.at >= since)


def request(line: dict[str, Any]) -> Request:
    """A line of the log (audit.k8s.io/v1 Event)."""
    target, who = line.get("objectRef") or {}, line["user"]
    status, notes = line.get("responseStatus") or {}, line.get("annotations") or {}
    return Request(
        at=datetime.fromisoformat(line["requestReceivedTimestamp"]).timestamp(),
        user=intern(who.get("username", "")),  # none where nobody was authenticated
        pod=intern(next(iter(who.get("extra", {}).get("authentication.kubernetes.io/pod-name", [])), "")),
        verb=intern(line["verb"]),
        group=intern(target.get("apiGroup", "")),
        resource=intern(target.get("resource", "")),
        subresource=intern(target.get("subresource", "")),
        namespace=intern(target.get("namespace", "")),
        name=target.get("name", ""),
        code=status.get("code", 0),
        forbidden=notes.get("authorization.k8s.io/decision") == "forbid",
        dry_run="dryRun=All" in line["requestURI"],
        uri=line["requestURI"],
    )


def _most(moments: list[float], within: float) -> int:
    """The greatest number of `moments`, ascending, that fit in `within` seconds."""
    most = first = 0
    for last, moment in enumerate(moments):
        while moment - moments[first] > within:
            first += 1
        most = max(most, last - first + 1)
    return most
