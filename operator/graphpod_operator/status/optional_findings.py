"""What the conditions about children of optional kinds say, and why: MonitorReady, RouteReady, ScalingReady. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from graphpod_operator.cache.route_status import NO_ROUTE
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.conditions.types import ConditionType
from graphpod_operator.kube.resources import Resource
from graphpod_operator.observe.observed_state import Observed
from graphpod_operator.observe.warmup_report import Reading
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.status.condition_findings import pods_asked
from graphpod_operator.status.finding import Finding

CONDITIONS = {Resource.PodMonitor: ConditionType.MonitorReady, Resource.HTTPRoute: ConditionType.RouteReady}
"""The condition about each kind; ScalingReady is about two."""
GRACE_SECONDS = 180.0
"""A Prometheus may take this long to scrape a new pod, or to read a new PodMonitor: the Prometheus operator writes its
configuration, Prometheus loads it and finds the pod, and a scrape interval passes.
"""
KEPT = (Reason.Scraped, Reason.NotScraped)
"""What stays true until new pods have had their time."""
SAID = {
    Reason.Scraped: "a Prometheus reads /metrics of the pods",
    Reason.NotScraped: "the PodMonitor exists, but no Prometheus reads /metrics of the pods",
}
"""Nothing in these texts changes with time or with the pods, so that a quiet service is not written."""


def find_optional(found: Service, desired: Desired, seen: Observed, now: str) -> dict[ConditionType, Finding]:
    """What became of the children of optional kinds: conditions that exist only while the spec requests these. `now` is
    RFC 3339.
    """
    optional = {CONDITIONS[one.resource]: Finding(*one.why) for one in desired.withheld}
    written = {child.resource for child in desired.children}
    for resource, condition in CONDITIONS.items():
        if resource not in written:
            continue
        if resource in seen.held_up:
            optional[condition] = _held_up(resource, seen)
        elif resource is Resource.HTTPRoute:
            optional[condition] = _route(desired, seen)
        else:
            before = next((one for one in found.status.get("conditions") or () if one.get("type") == condition), None)
            optional[condition] = find_monitor(desired, seen, before, now)
    return optional


def _held_up(resource: Resource, seen: Observed) -> Finding:
    return Finding(Reason.NotWritten, f"{resource.kind}: {seen.held_up[resource]}")


def find_monitor(desired: Desired, seen: Observed, before: Mapping[str, Any] | None, now: str) -> Finding:
    """Whether a Prometheus scrapes the service: one scraped pod proves that a Prometheus selects the PodMonitor and
    reaches the admin port. `before` is the condition as it was written last.
    """
    if Resource.PodMonitor not in seen.optional:
        return Finding(Reason.MonitorPending, "the PodMonitor does not exist yet")
    if pods_asked(desired, seen) == 0:
        return Finding(Reason.ScrapePending, "the spec requests no pods")
    answers = [seen.readings.get(pod.uid) for pod in seen.pods if not pod.deleting]
    readings = [answer for answer in answers if isinstance(answer, Reading)]
    if not readings:
        return _kept(before) or Finding(Reason.ScrapePending, "no pod has reported yet whether it is scraped")
    scrapes = [reading.scrapes for reading in readings if reading.scrapes is not None]
    if any(one.recent for one in scrapes):
        return Finding(Reason.Scraped, SAID[Reason.Scraped])
    if not scrapes:
        return Finding(Reason.ScrapeUnknown, "the engine of these pods does not report whether it is scraped")
    waited = max(one.listening_seconds for one in scrapes) >= GRACE_SECONDS
    asked = before is not None and _age(before, now) >= GRACE_SECONDS
    # a scrape that ended is no new pod's: the pod reports how long ago it was
    if waited and (asked or any(one.last_seconds_ago is not None for one in scrapes)):
        return Finding(Reason.NotScraped, SAID[Reason.NotScraped])
    return _kept(before) or Finding(Reason.ScrapePending, "no Prometheus has read /metrics of the pods yet")


def _kept(before: Mapping[str, Any] | None) -> Finding | None:
    """What was said last, if it holds until it is disproved."""
    reason = next((one for one in KEPT if before is not None and before.get("reason") == one.name), None)
    return Finding(reason, SAID[reason]) if reason is not None else None


def _age(condition: Mapping[str, Any], now: str) -> float:
    """Seconds since the condition's last transition; 0 when it has no time that can be read."""
    try:
        since = datetime.fromisoformat(condition["lastTransitionTime"])
        return (datetime.fromisoformat(now) - since).total_seconds()
    except (KeyError, TypeError, ValueError):
        return 0.0


def _route(desired: Desired, seen: Observed) -> Finding:
    reason, what = seen.route.summary if seen.route is not None else NO_ROUTE
    if reason is Reason.RouteAccepted and desired.shut:
        return Finding(
            Reason.RouteShut, f"{what}, but the NetworkPolicy keeps out pods of namespace {', '.join(desired.shut)}"
        )
    return Finding(reason, what)


def find_scaling(desired: Desired, seen: Observed) -> Finding:
    """What the autoscaler says of itself."""
    by = f"{desired.scaled_by}; spec.replicas is ignored"
    if desired.asleep:
        return Finding(Reason.AutoscalerHeld, f"the pods sleep, so their number stays; after that {desired.scaled_by}")
    if Resource.ScaledObject in seen.held_up:
        return _held_up(Resource.ScaledObject, seen)
    if seen.autoscaler is None or seen.autoscaler.trouble == "":
        return Finding(Reason.AutoscalerPending, by)
    if (trouble := seen.autoscaler.trouble) is not None:
        return Finding(Reason.AutoscalerIdle, trouble)
    return Finding(Reason.Autoscaled, by)
