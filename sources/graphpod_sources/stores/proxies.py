"""Proxies, as the variables HTTP_PROXY, HTTPS_PROXY and NO_PROXY name them."""

import ipaddress
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from graphpod_sources.names import shown
from graphpod_sources.problem import Problem, Reason


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where a proxy is, and its Proxy-Authorization header; `credentials` are the same as they stand in a URL."""

    host: str
    port: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    credentials: str = field(default="", repr=False)


def proxy_for(scheme: str, host: str) -> Proxy | None:
    """The proxy for requests to a host; None when they go there directly. Raises `Problem` (BadUri)."""
    named = getproxies_environment()
    text = named.get(scheme) or named.get("all")
    if not text or proxy_bypass_environment(host, named) or _in_a_network(host, named.get("no", "")):
        return None
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        found, port = parts.hostname, parts.port
    except ValueError:
        found, port = None, None
    if not found or parts.scheme != "http":
        without = text.rpartition("@")[2]
        raise Problem(
            Reason.BadUri,
            f"the proxy {shown(without)} cannot be used",
            next_step=f"set {scheme.upper()}_PROXY to http://HOST:PORT",
        )
    headers = {}
    if parts.username is not None:
        word = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {b64encode(word.encode()).decode()}"
    return Proxy(found, port or 80, headers, parts.netloc.rpartition("@")[0])


def _in_a_network(host: str, without: str) -> bool:
    """Whether NO_PROXY has a network of the address, as clusters write theirs: 10.0.0.0/8."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    for entry in without.split(","):
        try:
            if "/" in entry and address in ipaddress.ip_network(entry.strip(), strict=False):
                return True
        except ValueError:
            continue
    return False
