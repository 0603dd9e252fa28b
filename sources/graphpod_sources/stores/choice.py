"""The source of a uri, with the credentials and endpoints that belong to it."""

import ipaddress
import re
from pathlib import Path

from graphpod_sources.credentials import DOCKER, Credentials
from graphpod_sources.listing import Source
from graphpod_sources.names import shown
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.stores import secret_hosts
from graphpod_sources.stores.allowed_hosts import ALL, AllowedHosts
from graphpod_sources.stores.http_client import Http
from graphpod_sources.stores.https_file import Web
from graphpod_sources.stores.hub import ENDPOINT, Hub
from graphpod_sources.stores.local import Local
from graphpod_sources.stores.oci import Registry
from graphpod_sources.uri import ModelUri, Scheme

PLAIN_HTTP = "OCI_PLAIN_HTTP"
"""Registries without TLS, HOST[:PORT] each, separated by commas. One on this machine needs no mention."""

HUB = re.compile(r"huggingface\.co")
"""Where HF_TOKEN may go without another word."""
TOKENS = ("token", "HF_TOKEN")


def source_of(
    uri: ModelUri,
    credentials: Credentials,
    sha256: str | None,
    stall_seconds: float,
    allowed: AllowedHosts = ALL,
) -> Source:
    """Raises `Problem` for settings that do not belong together or cannot be used, and for a Secret that may not be
    sent there.
    """
    if sha256 is not None and uri.scheme is not Scheme.Web:
        raise Problem(
            Reason.BadUri,
            f"a checksum is of one file, and {uri.shown} is not https://",
            next_step="remove spec.model.sha256",
        )
    match uri.scheme:
        case Scheme.Hub:
            endpoint = _endpoint(credentials)
            if (key := credentials.named(*TOKENS)) is not None and "HF_ENDPOINT" not in credentials.secret:
                own = HUB if key == "HF_TOKEN" else secret_hosts.NO_HOST
                secret_hosts.check(credentials, (key,), endpoint, own)
            return Hub(uri, Http(stall_seconds, allowed), endpoint, _header_safe(credentials.get(*TOKENS)))
        case Scheme.S3 | Scheme.Google | Scheme.Azure:
            from graphpod_sources.stores.objects import Objects

            return Objects(uri, credentials, stall_seconds, allowed)
        case Scheme.Web:
            if sha256 is None:
                raise Problem(
                    Reason.BadUri,
                    f"{uri.shown} needs a checksum: nothing else says that the file is the one you mean",
                    next_step="set spec.model.sha256 to what sha256sum prints for the file",
                )
            secret_hosts.check(credentials, ("token",), uri.text)
            return Web(uri, Http(stall_seconds, allowed), sha256, _header_safe(credentials.get("token")))
        case Scheme.Registry:
            plain = uri.place in (credentials.get(PLAIN_HTTP) or "").split(",") or _local(uri.place)
            login = credentials.registry(uri.place)
            if login is not None and plain and not _local(uri.place) and PLAIN_HTTP not in credentials.secret:
                secret_hosts.check(credentials, (DOCKER,), f"http://{uri.place}")
            return Registry(uri, Http(stall_seconds, allowed), login, plain=plain)
        case Scheme.Local:
            return Local(uri)


def check_authorities(credentials: Credentials, root: Path) -> None:
    """Raises `Problem` (BadUri) for authorities of TLS that lie in the cache: every download may write there, and
    whoever chooses the authorities and a proxy reads what the Secret has.
    """
    named = credentials.get("SSL_CERT_FILE")
    if named and credentials.secret and Path(named).resolve().is_relative_to(root):
        raise Problem(
            Reason.BadUri,
            f"SSL_CERT_FILE is {shown(named)}, a file of the cache, and a Secret is in use",
            next_step="put the authorities into the Secret, under the key ca.crt, and name that file",
        )


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
