"""The HTTPRoute: gateways lead to the service's API, and to nothing else that its port answers."""

from __future__ import annotations

from graphpod_operator.api.networking import GATEWAY_DEFAULT, Route
from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.owner import Body, Owner
from graphpod_operator.render.service import API_PATH, api_port

PAGES = ("/tokenize", "/detokenize", "/version", "/health")
"""What else clients may ask. The port serves more (metrics, the load), which is not for them."""


def http_route(owner: Owner, route: Route) -> Body:
    """API_PATH and PAGES to the Service: one rule, or one for each path where a prefix is taken off. In the server's
    normal form: its lists are compared as a whole, defaults included.
    """
    prefix = route.path_prefix or ""
    matches = [_match("PathPrefix", prefix + API_PATH), *(_match("Exact", prefix + page) for page in PAGES)]
    rules = [_rule(owner, route, matches)]
    if prefix:
        rewrites = [
            {"type": "ReplacePrefixMatch", "replacePrefixMatch": API_PATH},
            *({"type": "ReplaceFullPath", "replaceFullPath": page} for page in PAGES),
        ]
        rules = [
            {**_rule(owner, route, [match]), "filters": [{"type": "URLRewrite", "urlRewrite": {"path": path}}]}
            for match, path in zip(matches, rewrites, strict=True)
        ]
    return owner.child(
        Resource.HTTPRoute,
        owner.name,
        spec={
            "parentRefs": [
                {"group": Resource.HTTPRoute.group, "kind": "Gateway"}
                | ref.model_dump(mode="json", by_alias=True, exclude_none=True)
                for ref in route.parent_refs
            ],
            **({"hostnames": list(route.hostnames)} if route.hostnames else {}),
            "rules": rules,
        },
    )


def _match(kind: str, path: str) -> Body:
    return {"path": {"type": kind, "value": path}}


def _rule(owner: Owner, route: Route, matches: list[Body]) -> Body:
    backend = {"group": "", "kind": "Service", "name": owner.name, "port": api_port(owner.spec).number, "weight": 1}
    rule: Body = {"matches": matches, "backendRefs": [backend]}
    if route.request_timeout != GATEWAY_DEFAULT:
        # written even without a limit: without it a gateway may cut a stream after 15 s
        rule["timeouts"] = {"request": route.request_timeout}
    return rule


def gateway_namespaces(owner: Owner) -> tuple[str, ...]:
    """Namespaces of others in which the gateways are."""
    route = owner.spec.networking.route
    named = dict.fromkeys(ref.namespace for ref in (route.parent_refs if route else ()))
    return tuple(namespace for namespace in named if namespace not in (None, owner.namespace))
