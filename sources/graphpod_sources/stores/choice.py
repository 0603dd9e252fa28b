"""The source of a uri, with the credentials and endpoints that belong to it."""

import ipaddress

from graphpod_sources.credentials import Credentials
from graphpod_sources.listing import Source
from graphpod_sources.names import shown
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.stores.http import Http
from graphpod_sources.stores.hub import ENDPOINT, Hub
from graphpod_sources.stores.local import Local
from graphpod_sources.stores.oci import Registry
from graphpod_sources.stores.web import Web
from graphpod_sources.uri import ModelUri, Scheme

PLAIN_HTTP = "OCI_PLAIN_HTTP"
"""Registries without TLS, HOST[:PORT] each, separated by commas. One on this machine needs no mention."""


def source_of(uri: ModelUri, credentials: Credentials, sha256: str | None, stall_seconds: float) -> Source:
    """Raises `Problem` for settings that do not belong together or cannot be used."""
    if sha256 is not None and uri.scheme is not Scheme.Web:
        raise Problem(
            Reason.BadUri,
            f"a checksum is of one file, and {uri.shown} is not https://",
            next_step="remove spec.model.sha256",
        )
    match uri.scheme:
        case Scheme.Hub:
            token = credentials.get("token", "HF_TOKEN")
            return Hub(uri, Http(stall_seconds), _endpoint(credentials), _header_safe(token))
        case Scheme.S3 | Scheme.Google | Scheme.Azure:
            from graphpod_sources.stores.objects import Objects

            return Objects(uri, credentials, stall_seconds)
        case Scheme.Web:
            if sha256 is None:
                raise Problem(
                    Reason.BadUri,
                    f"{uri.shown} needs a checksum: nothing else says that the file is the one you mean",
                    next_step="set spec.model.sha256 to what sha256sum prints for the file",
                )
            return Web(uri, Http(stall_seconds), sha256, _header_safe(credentials.get("token")))
        case Scheme.Registry:
            plain = uri.place in (credentials.get(PLAIN_HTTP) or "").split(",") or _local(uri.place)
            return Registry(uri, Http(stall_seconds), credentials.registry(uri.place), plain=plain)
        case Scheme.Local:
            return Local(uri)


def _endpoint(credentials: Credentials) -> str:
    endpoint = credentials.get("HF_ENDPOINT") or ENDPOINT
    if not endpoint.startswith(("https://", "http://")):
        raise Problem(
            Reason.BadUri,
            f"HF_ENDPOINT is {shown(endpoint)}, which is no address",
            next_step="set it to https://HOST, or remove it",
        )
    return endpoint


def _header_safe(token: str | None) -> str | None:
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise Problem(Reason.Unauthorized, "the token of the Secret has characters that no token has")
    return token


def _local(place: str) -> bool:
    host = place.rpartition(":")[0] if ":" in place and not place.endswith("]") else place
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
