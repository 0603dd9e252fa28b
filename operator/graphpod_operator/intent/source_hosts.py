"""The hosts that a download connects to by its URI and its settings. Pure.

Redirects and logins lead to others, which only the Job learns. What cannot be read as a host here is for the Job to
refuse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from graphpod_operator.api.pod import EnvVar
from graphpod_operator.api.spec import Spec
from graphpod_operator.intent.model_uri import ModelUri

SETTINGS = (
    "HF_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SKIP_SIGNATURE",
    "GOOGLE_BASE_URL", "AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_ACCOUNT_NAME", "OCI_PLAIN_HTTP", "SSL_CERT_FILE",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip
"""The variables of spec.podTemplate.env that a download gets, too. No credential is among them, and none that names a
file with one: those of a Secret would go wherever the endpoints lead.
"""
PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
PORTS = {"http": 80, "https": 443}
IN_CLUSTER = re.compile(r"[a-z0-9-]+\.([a-z0-9-]+)\.svc(\.[a-z0-9.-]+)?")
"""A Service as a pod names it."""


@dataclass(frozen=True, slots=True)
class SourceHost:
    """One host, the field that names it, and its port."""

    field: str
    host: str
    port: int

    @property
    def namespace(self) -> str | None:
        """The namespace of the cluster's own Service that it is, as far as its name says so: NAME.NAMESPACE.svc.
        Empty for a Service of the download's own namespace.
        """
        if "." not in self.host and ":" not in self.host:
            return ""
        found = IN_CLUSTER.fullmatch(self.host)
        return found[1] if found is not None else None


def settings(spec: Spec) -> tuple[EnvVar, ...]:
    """The variables that a download gets: those with a value. A reference could bring what is a Secret's."""
    return tuple(one for one in spec.pod_template.env if one.name in SETTINGS and one.value_from is None)


def source_hosts(uri: ModelUri, field: str, spec: Spec) -> tuple[SourceHost, ...]:
    """The hosts of one download; `field` names its URI. A proxy is one of them."""
    given = {one.name: one.value or "" for one in settings(spec)}
    found = [*_HOSTS[uri.scheme](uri, field, given)] if uri.scheme in _HOSTS else []
    proxies = (host_of(f"spec.podTemplate.env[{name}]", given.get(name, "")) for name in PROXIES)
    return tuple(one for one in (*found, *proxies) if one is not None)


def _hub(_: ModelUri, field: str, given: Mapping[str, str]) -> Iterator[SourceHost | None]:
    yield _setting(given, "HF_ENDPOINT") or SourceHost(field, "huggingface.co", 443)


def _s3(_: ModelUri, field: str, given: Mapping[str, str]) -> Iterator[SourceHost | None]:
    region = given.get("AWS_REGION") or given.get("AWS_DEFAULT_REGION") or "us-east-1"
    named = _setting(given, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    yield named or SourceHost(field, f"s3.{region}.amazonaws.com", 443)


def _google(_: ModelUri, field: str, given: Mapping[str, str]) -> Iterator[SourceHost | None]:
    yield _setting(given, "GOOGLE_BASE_URL") or SourceHost(field, "storage.googleapis.com", 443)


def _azure(_: ModelUri, field: str, given: Mapping[str, str]) -> Iterator[SourceHost | None]:
    """Of an account that the Secret names nothing is known here."""
    account = given.get("AZURE_STORAGE_ACCOUNT_NAME")
    own = SourceHost(field, f"{account}.blob.core.windows.net", 443) if account else None
    yield _setting(given, "AZURE_STORAGE_ENDPOINT") or own


def _web(uri: ModelUri, field: str, _: Mapping[str, str]) -> Iterator[SourceHost | None]:
    yield host_of(field, f"https://{uri.authority}")


def _registry(uri: ModelUri, field: str, given: Mapping[str, str]) -> Iterator[SourceHost | None]:
    if uri.authority in ("docker.io", "index.docker.io"):
        yield SourceHost(field, "registry-1.docker.io", 443)
        return
    plain = uri.authority in given.get("OCI_PLAIN_HTTP", "").split(",")
    yield host_of(field, f"{'http' if plain else 'https'}://{uri.authority}")


_HOSTS: Mapping[str, Callable[[ModelUri, str, Mapping[str, str]], Iterator[SourceHost | None]]] = {
    "hf": _hub,
    "s3": _s3,
    "gs": _google,
    "az": _azure,
    "https": _web,
    "oci": _registry,
}


def _setting(given: Mapping[str, str], *names: str) -> SourceHost | None:
    name = next((name for name in names if given.get(name)), None)
    return host_of(f"spec.podTemplate.env[{name}]", given[name]) if name is not None else None


def host_of(field: str, address: str) -> SourceHost | None:
    """The host of an address that `field` has; None of what cannot be read as one."""
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    return SourceHost(field, host, port or PORTS.get(parts.scheme, 443)) if host else None
