"""What gateways say of a route: `status.parents` of an HTTPRoute, for each Gateway that its spec names. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from graphpod_operator.api.status import ADDRESS_MAX, MAX_ADDRESSES
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.kube.cluster import Raw

WORDS = ("Accepted", "ResolvedRefs")
"""The conditions that are True of a route that works, the weightier first."""

BY_WORD: dict[str, Reason] = {
    "NotAllowedByListeners": Reason.RouteNotAllowed,
    "NoMatchingListenerHostname": Reason.RouteHostnameUnmatched,
    "NoMatchingParent": Reason.RouteListenerUnmatched,
    "UnsupportedValue": Reason.RouteUnsupported,
    "IncompatibleFilters": Reason.RouteUnsupported,
}
"""The Gateway API's own reasons for which we have a next step."""


class GatewayAnswer(NamedTuple):
    """What one Gateway says."""

    gateway: str
    reason: Reason
    what: str


@dataclass(frozen=True, slots=True)
class RouteStatus:
    """An HTTPRoute as far as status reports it: the addresses it gives the API, and what each Gateway says."""

    addresses: tuple[str, ...]
    answers: tuple[GatewayAnswer, ...]

    @classmethod
    def of(cls, raw: Raw) -> RouteStatus:
        """The projection of an HTTPRoute."""
        metadata, spec = raw["metadata"], raw.get("spec") or {}
        generation = metadata.get("generation", 1)
        parents = (raw.get("status") or {}).get("parents") or ()
        matches = [match for rule in spec.get("rules") or () for match in rule.get("matches") or ()]
        paths = [match.get("path") or {} for match in matches]
        # an exact path is a single page, not an address to ask below
        below = [path.get("value", "/") for path in paths if path.get("type") != "Exact"]
        addresses = [f"{host}{path}" for host in spec.get("hostnames") or () for path in below]
        return cls(
            # another writer may have made it longer than the status has room for
            addresses=tuple(address for address in addresses if len(address) <= ADDRESS_MAX)[:MAX_ADDRESSES],
            answers=tuple(
                _answer(ref, parents, metadata["namespace"], generation) for ref in spec.get("parentRefs") or ()
            ),
        )

    @property
    def taken(self) -> bool:
        """Whether it names a Gateway, and every one takes it."""
        return bool(self.answers) and all(answer.reason is Reason.RouteAccepted for answer in self.answers)

    @property
    def summary(self) -> tuple[Reason, str]:
        """The reason for the whole route, and its message: a refusal before silence, silence before acceptance."""
        refused = [one for one in self.answers if one.reason not in (Reason.RouteAccepted, Reason.RoutePending)]
        silent = [one for one in self.answers if one.reason is Reason.RoutePending]
        for first in (*refused, *silent):
            return first.reason, f"{first.gateway}: {first.what}"
        if not self.answers:
            return Reason.RoutePending, "the HTTPRoute names no Gateway"
        names = ", ".join(answer.gateway for answer in self.answers)
        return Reason.RouteAccepted, f"accepted by {names}"


NO_ROUTE = Reason.RoutePending, "the HTTPRoute does not exist yet"
"""What is reported while the HTTPRoute does not exist."""


def _answer(ref: Raw, parents: Any, home: str, generation: int) -> GatewayAnswer:
    """What the controllers of one Gateway report on the route's present form."""
    namespace = ref.get("namespace", home)
    listener = f", listener {ref['sectionName']}" if "sectionName" in ref else ""
    gateway = f"Gateway {namespace}/{ref['name']}{listener}"
    rows = [
        row
        for parent in parents
        if _same(parent["parentRef"], ref, home)
        for row in parent.get("conditions") or ()
        if row.get("observedGeneration", generation) >= generation
    ]
    for word in WORDS:
        for row in rows:
            if row["type"] == word and row["status"] == "False":
                reason, message = row.get("reason", word), row.get("message", "")
                what = f"{reason}: {message}" if message else reason
                return GatewayAnswer(gateway, BY_WORD.get(reason, Reason.RouteRefused), what)
    if {row["type"] for row in rows if row["status"] == "True"}.issuperset(WORDS):
        return GatewayAnswer(gateway, Reason.RouteAccepted, "")
    return GatewayAnswer(gateway, Reason.RoutePending, "its controller has not reported whether it accepts the route")


def _same(one: Raw, other: Raw, home: str) -> bool:
    """Whether two references are to the same listeners of the same Gateway."""

    def identity(ref: Raw) -> tuple[Any, ...]:
        return ref["name"], ref.get("namespace", home), ref.get("sectionName"), ref.get("port")

    return identity(one) == identity(other)
