"""The HTTPRoute: gateways lead to the service's API, and to nothing else that its port answers."""

from __future__ import annotations

from graphpod_operator.api.networking import GATEWAY_DEFAULT, Route
from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.owner import Body, Owner
from graphpod_operator.render.service import API_PATH, PORT


def http_route(owner: Owner, route: Route) -> Body:
    """One rule to the Service. In the server's normal form: its lists are compared as a whole, defaults included."""
    prefix = route.path_prefix or ""
    backend = {"group": "", "kind": "Service", "name": owner.name, "port": PORT, "weight": 1}
    rule: Body = {
        "matches": [{"path": {"type": "PathPrefix", "value": prefix + API_PATH}}],
        "backendRefs": [backend],
    }
    if prefix:
        path = {"type": "ReplacePrefixMatch", "replacePrefixMatch": API_PATH}
        rule["filters"] = [{"type": "URLRewrite", "urlRewrite": {"path": path}}]
    if route.request_timeout != GATEWAY_DEFAULT:
        # written even without a limit: without it a gateway may cut a stream after 15 s
        rule["timeouts"] = {"request": route.request_timeout}
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
            "rules": [rule],
        },
    )


def gateway_namespaces(owner: Owner) -> tuple[str, ...]:
    """Namespaces of others in which the gateways are."""
    route = owner.spec.networking.route
    named = dict.fromkeys(ref.namespace for ref in (route.parent_refs if route else ()))
    return tuple(namespace for namespace in named if namespace not in (None, owner.namespace))
