"""The reasons of the conditions about children of optional kinds: MonitorReady, RouteReady, ScalingReady. One is
also that of a service whose pods need such a kind.
"""

from __future__ import annotations

from graphpod_operator.api.status import ConditionStatus
from graphpod_operator.conditions.reason_row import ReasonRow, warns
from graphpod_operator.conditions.types import ConditionType

_A = ConditionType.Accepted
_MON = (ConditionType.MonitorReady,)
_X = (ConditionType.ScalingReady,)
_RT = (ConditionType.RouteReady,)
_T, _F, _U = ConditionStatus.true, ConditionStatus.false, ConditionStatus.unknown

# fmt: off
ROWS = {
    # conditions about optional kinds
    "KindNotServed": warns(
        (*_MON, *_RT), _F, "the cluster does not serve the kind", "the kind's CRD is installed",
        "install its CRD; the operator looks for it every minute",
    ),
    "KindNotGranted": warns(
        (*_MON, *_RT), _F, "the operator has no right to use the kind, or is configured not to use it",
        "the operator may use the kind",
        "switch the kind on in the chart's values, under optionalKinds",
    ),
    "KindNotListed": warns(
        (_A, *_MON, *_RT), _F, "the cluster serves the kind, but fails to list its objects: its conversion webhook or "
        "its own API server is down", "the objects can be listed",
        "check the kind's conversion webhook (kubectl get crds) or API server (kubectl get apiservices); the operator "
        "retries every 10 s",
    ),
    "NotWritten": warns(
        (*_MON, *_X, *_RT), _F, "the API server refuses the object, or cannot be reached; the pods run without it",
        "the API server accepts the object",
        "fix the field that the server names, or simplify the spec; the operator retries, at "
        "most every 5 min",
    ),
    "Scraped": ReasonRow(
        _MON, _T, "a Prometheus read /metrics of a pod in the last 10 min",
        "no pod was read for 10 min, which is noticed within 10 more",
    ),
    "NotScraped": warns(
        _MON, _F, "the PodMonitor exists for 3 min, a pod listens for as long, and no Prometheus reads its /metrics",
        "a Prometheus reads /metrics of a pod",
        "set the labels by which your Prometheus selects PodMonitors in spec.monitoring.labels, and list its namespace "
        "in networkPolicy.monitoring of the chart",
    ),
    "ScrapePending": ReasonRow(
        _MON, _U, "the PodMonitor exists, and no pod has been read yet", "a Prometheus reads a pod, or 3 min are over",
        "wait 3 min; kubectl get prometheus -A -o yaml shows which labels yours selects",
    ),
    "ScrapeUnknown": ReasonRow(
        _MON, _U, "the PodMonitor exists, and the engine is too old to report whether it is scraped",
        "a newer engine reports it",
        "adopt the present engine; EngineUpdateAvailable names the revision",
    ),
    "MonitorPending": ReasonRow(
        _MON, _U, "the PodMonitor does not exist yet", "the PodMonitor exists", "see the condition Accepted",
    ),
    # RouteReady
    "RouteAccepted": ReasonRow(
        _RT, _T, "every gateway accepts the route and finds the Service (Accepted and ResolvedRefs)",
        "a gateway refuses the route",
    ),
    "RouteShut": warns(
        _RT, _U, "every gateway accepts the route, but the NetworkPolicy keeps out the pods of a Gateway's namespace, "
        "where its proxies may be", "the NetworkPolicy admits these pods, or a list of gateways elsewhere",
        "add it to networkPolicy.routeNamespaces of the chart, or its proxies to networkPolicy.gateways",
    ),
    "RoutePending": ReasonRow(
        _RT, _U, "a gateway's controller has not reported on the current route", "the controller has reported",
        "check that the Gateway exists and its controller runs: kubectl get gateways.gateway.networking.k8s.io -A",
    ),
    "RouteNotAllowed": warns(
        _RT, _F, "no listener of a gateway admits routes of this namespace (NotAllowedByListeners)",
        "a listener admits this namespace",
        "let allowedRoutes of a listener of that Gateway admit this namespace",
    ),
    "RouteHostnameUnmatched": warns(
        _RT, _F, "no listener of a gateway has one of the hostnames (NoMatchingListenerHostname)",
        "a listener has one of them",
        "set spec.networking.route.hostnames to a host of that Gateway's listeners",
    ),
    "RouteListenerUnmatched": warns(
        _RT, _F, "a gateway has no listener of that name or port (NoMatchingParent)", "the Gateway has such a listener",
        "correct sectionName and port in spec.networking.route.parentRefs",
    ),
    "RouteUnsupported": warns(
        _RT, _F, "a gateway does not support what the route requests (UnsupportedValue, IncompatibleFilters)",
        "the route requests less",
        "remove spec.networking.route.pathPrefix, or set spec.networking.route.requestTimeout: GatewayDefault",
    ),
    "RouteRefused": warns(
        _RT, _F, "a gateway does not accept the route for another reason, or does not find the Service",
        "every gateway accepts the route",
        "for the cause: kubectl -n NAMESPACE describe httproute NAME",
    ),
    # ScalingReady
    "Autoscaled": ReasonRow(
        _X, _T, "an autoscaler decides on the number of pods, and spec.replicas is ignored",
        "spec.autoscaling is removed, spec.suspend is true, or the autoscaler reports that it cannot scale",
    ),
    "AutoscalerPending": ReasonRow(
        _X, _U, "the autoscaler has not reported yet whether it can scale", "the autoscaler has reported",
        consequence=True,
    ),
    "AutoscalerIdle": ReasonRow(
        _X, _F, "the autoscaler reports that it cannot scale; the number of pods stays as it is",
        "the autoscaler can scale",
        "check that a metrics adapter serves the metric; for the cause: kubectl -n NAMESPACE describe "
        "hpa,scaledobjects NAME",
    ),
    "AutoscalerHeld": ReasonRow(
        _X, _F, "the pods sleep by the annotation graphpod.dev/sleep: the autoscaler leaves their number as it is",
        "the annotation is removed", consequence=True,
    ),
}
