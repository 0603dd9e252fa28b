"""s3://, gs:// and az://: objects below a prefix, by one library."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from graphpod_sources.credentials import Credentials
from graphpod_sources.listing import MOST_FILES, Listing, RemoteFile
from graphpod_sources.names import safe, shown
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.stores import secret_hosts
from graphpod_sources.stores.allowed_hosts import ALL, AllowedHosts
from graphpod_sources.stores.http_client import STATUSES, origin
from graphpod_sources.stores.proxies import proxy_for
from graphpod_sources.stores.redirect_guard import RedirectGuard
from graphpod_sources.uri import ModelUri, Scheme

if TYPE_CHECKING:
    from obstore import GetOptions

CHUNK = 1 << 20
Store = S3Store | GCSStore | AzureStore
_Opener = Callable[[str, Credentials, Mapping[str, Any]], Store]
AZURE_HOSTS = re.compile(r"[a-z0-9]{3,24}\.blob\.core\.windows\.net")
"""All accounts: what a role sends there, Azure alone receives."""
KINDS: tuple[tuple[type[Exception], Reason], ...] = (
    (exceptions.NotFoundError, Reason.NotFound),
    (FileNotFoundError, Reason.NotFound),
    (exceptions.PermissionDeniedError, Reason.Unauthorized),
    (exceptions.UnauthenticatedError, Reason.Unauthorized),
    (exceptions.PreconditionError, Reason.ChangedUnderUs),
    (exceptions.InvalidPathError, Reason.BadUri),
    (exceptions.UnknownConfigurationKeyError, Reason.BadUri),
)
SAID: tuple[tuple[str, Reason], ...] = (
    ("non-partial response", Reason.NoRanges),
    ("SlowDown", Reason.RateLimited),
    ("TooManyRequests", Reason.RateLimited),
    ("TimedOut", Reason.Stalled),
    ("timed out", Reason.Stalled),
    ("error decoding response body", Reason.Truncated),
    ("end of file", Reason.Truncated),
    ("error sending request", Reason.Unreachable),
    ("redential", Reason.Unauthorized),
)
"""What the text of the library's general error has, in this order, where it names no HTTP status."""
REGION = re.compile(r"[a-z0-9-]{1,32}")
ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
OWN: Mapping[Scheme, tuple[tuple[str, ...], tuple[str, ...], re.Pattern[str]]] = {
    Scheme.S3: (
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
        ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
        re.compile(r"s3(\.dualstack)?(\.[a-z]{2}(-[a-z]+)+-[0-9])?\.amazonaws\.com(\.cn)?"),
    ),
    Scheme.Google: (
        ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY"),
        ("GOOGLE_BASE_URL",),
        re.compile(r"storage\.googleapis\.com"),
    ),
    Scheme.Azure: (
        ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN", "SAS_TOKEN"),
        ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "AZURE_STORAGE_ACCOUNT_NAME"),
        secret_hosts.NO_HOST,
    ),
}
"""By scheme: the keys that are credentials, those that name the endpoint, and the service's own hosts. An account of
Azure is a host: where a variable names it, the Secret has to say so.
"""
LOGINS: Mapping[Scheme, tuple[str, ...]] = {
    Scheme.S3: ("AWS_ENDPOINT_URL_STS", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_METADATA_ENDPOINT"),
    Scheme.Google: ("GCE_METADATA_HOST",),
    Scheme.Azure: ("AZURE_AUTHORITY_HOST", "IDENTITY_ENDPOINT", "AZURE_MSI_ENDPOINT"),
}
"""Variables that name where a role logs in: URLs, and for Google HOST or HOST:PORT."""
AWS_LOCAL = ip_network("fd00:ec2::/32")
METADATA = "http://169.254.169.254"
"""Where clouds give a node, and some a pod, its role."""
ROLES: Mapping[Scheme, tuple[tuple[str, ...], re.Pattern[str]]] = {
    Scheme.S3: (
        (
            "AWS_SKIP_SIGNATURE",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        ),
        OWN[Scheme.S3][2],
    ),
    Scheme.Google: (
        ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_BEARER_TOKEN", "GOOGLE_SKIP_SIGNATURE"),
        OWN[Scheme.Google][2],
    ),
    Scheme.Azure: (("AZURE_FEDERATED_TOKEN_FILE", "AZURE_CLIENT_SECRET", "AZURE_SKIP_SIGNATURE"), AZURE_HOSTS),
}
"""Variables by which a cluster gives a pod a role, or a user asks for the node's; and the hosts that a role is for."""
_STATUS = re.compile(r"non-2xx status code: (\d{3})")


class Objects:
    """Objects of one bucket or container below a prefix."""

    def __init__(
        self, uri: ModelUri, credentials: Credentials, stall_seconds: float, allowed: AllowedHosts = ALL
    ) -> None:
        self._uri = uri
        self._prefix = f"{uri.folder}/" if uri.folder else ""
        authorities = credentials.get("SSL_CERT_FILE")
        scheme, host, port = origin(where := ENDPOINTS[uri.scheme](credentials))
        allowed.check(host, port)
        if (proxy := proxy_for(scheme, host)) is not None:
            allowed.check(proxy.host, proxy.port)
        keys, named, own = OWN[uri.scheme]
        if credentials.named(*named) not in credentials.secret:
            secret_hosts.check(credentials, keys, where, own)
        self._host, self._guard = host, RedirectGuard((where, *_logins(uri.scheme, credentials, where, allowed)))
        options: dict[str, Any] = {
            "client_options": {
                **({"root_certificate": _certificates(authorities)} if authorities else {}),
                **self._guard.options,
                "allow_http": scheme == "http",
                "connect_timeout": timedelta(seconds=min(15.0, stall_seconds)),
                "read_timeout": timedelta(seconds=min(30.0, stall_seconds)),
                "timeout": timedelta(hours=1),
            },
            # Tries and waits are Patience's, which has one deadline for all.
            "retry_config": {"max_retries": 0, "retry_timeout": timedelta(seconds=1)},
        }
        try:
            self._store: Store = _STORES[uri.scheme](uri.place, credentials, options)
        except (ValueError, exceptions.BaseError) as error:
            raise self._problem(error) from error

    def listing(self) -> Listing:
        """The commit is a digest over names, sizes and entity tags: these stores have no versions of folders."""
        files = []
        try:
            for page in obstore.list(self._store, prefix=self._uri.folder or None):
                for entry in page:
                    key = entry["path"]
                    if key.startswith(self._prefix):
                        below = safe(key.removeprefix(self._prefix), self._uri.shown)
                        files.append(RemoteFile(below, entry["size"], key, etag=entry["e_tag"]))
                if len(files) > MOST_FILES:
                    raise Problem(
                        Reason.BadUri,
                        f"{self._uri.shown}: has more than {MOST_FILES} objects",
                        next_step="name the model's folder in spec.model.uri",
                    )
        except exceptions.BaseError as error:
            raise self._problem(error) from error
        if not files:
            raise Problem(Reason.NotFound, f"{self._uri.shown}: no object is below this prefix")
        rows = sorted(f"{file.path}\0{file.size}\0{file.etag}\n" for file in files)
        return Listing(f"sha256:{hashlib.sha256(''.join(rows).encode()).hexdigest()}", tuple(files))

    def read(self, file: RemoteFile, start: int, end: int | None) -> Iterator[memoryview]:
        last = (file.size or 0) if end is None else end
        options: GetOptions = {"if_match": file.etag, "range": (start, last)}
        try:
            got = obstore.get(self._store, file.address, options=options)
            if got.meta["size"] != file.size:
                raise Problem(
                    Reason.ChangedUnderUs,
                    f"{shown(file.path)}: {self._uri.shown} has {got.meta['size']} bytes, and {file.size} were listed",
                )
            if file.etag and got.meta["e_tag"] not in (None, file.etag):  # not every store heeds If-Match
                raise Problem(Reason.ChangedUnderUs, f"{shown(file.path)}: {self._uri.shown} was replaced")
            for chunk in got.stream(min_chunk_size=CHUNK):
                yield memoryview(chunk)
        except (exceptions.BaseError, FileNotFoundError) as error:  # the library raises the latter for 404
            raise self._problem(error, file.path) from error

    def _problem(self, error: Exception, path: str = "") -> Problem:
        """What the library says, in our words. Its own text may hold signed addresses, so only its kind is shown."""
        where = f"{self._uri.shown}: {shown(path)}" if path else self._uri.shown
        if (host := self._guard.refused) is not None:
            return Problem(
                Reason.HostNotAllowed,
                f"{where}: the store redirects to {shown(host)}, and the credentials are for {self._host} alone",
                next_step="if that host is right, name it as the endpoint in spec.podTemplate.env",
            )
        reason = next((reason for kind, reason in KINDS if isinstance(error, kind)), None)
        said, status = str(error), _STATUS.search(str(error))
        if reason is None:
            reason = next((reason for text, reason in SAID if text in said), None)
        if reason is None and status:
            reason = STATUSES.get(int(status[1]))
        reason = reason or Reason.ServerError
        meaning = {
            Reason.NotFound: "does not exist",
            Reason.Unauthorized: "the store refuses these credentials, or wants some",
            Reason.ChangedUnderUs: "was replaced during the download",
            Reason.NoRanges: "the store, or a proxy on the way, ignores range requests and answers with whole objects",
            Reason.BadUri: "is not understood by the store's client",
            Reason.RateLimited: "the store asks for fewer requests",
            Reason.Unreachable: "the store cannot be reached",
            Reason.Stalled: "the store sends nothing",
            Reason.Truncated: "the connection ended early",
        }.get(reason, "the store answers with an error")
        return Problem(reason, f"{where}: {meaning} ({status[1] if status else type(error).__name__})")


def _certificates(file: str) -> bytes:
    """Certificates of authorities, in PEM. Raises `Problem` (Unreachable)."""
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise Problem(
            Reason.Unreachable,
            f"SSL_CERT_FILE is {shown(file)}: {error.strerror}",
            next_step="mount that file, or unset it",
        ) from error


def _s3_endpoint(credentials: Credentials) -> str:
    named = credentials.get(*OWN[Scheme.S3][1])
    return named or f"https://s3.{_region(credentials)}.amazonaws.com"


def _region(credentials: Credentials) -> str:
    """It is part of a host's name."""
    region = credentials.get("AWS_REGION", "AWS_DEFAULT_REGION") or "us-east-1"
    if not REGION.fullmatch(region):
        raise Problem(Reason.BadUri, f"AWS_REGION is {shown(region)}", next_step="name a region, such as us-east-1")
    return region


def _google_endpoint(credentials: Credentials) -> str:
    """An account may name one, too: the library goes there."""
    try:
        named = json.loads(credentials.get(*OWN[Scheme.Google][0]) or "{}").get("gcs_base_url")
    except (ValueError, AttributeError, RecursionError):
        named = None
    return credentials.get(*OWN[Scheme.Google][1]) or str(named or "https://storage.googleapis.com")


def _azure_endpoint(credentials: Credentials) -> str:
    account = _account(credentials)
    return credentials.get("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT") or f"https://{account}.blob.core.windows.net"


def _account(credentials: Credentials) -> str:
    """It is part of a host's name."""
    account = credentials.get("AZURE_STORAGE_ACCOUNT_NAME")
    if account is None or not ACCOUNT.fullmatch(account):
        raise Problem(
            Reason.Unauthorized,
            "no storage account is given" if account is None else "its storage account has no valid name",
            next_step="put AZURE_STORAGE_ACCOUNT_NAME, and for a private container AZURE_STORAGE_ACCOUNT_KEY or "
            "AZURE_STORAGE_SAS_TOKEN, into the Secret of spec.model.secretRef",
        )
    return account


def _role(credentials: Credentials, endpoint: str, scheme: Scheme) -> bool:
    """Whether the pod's role is used: where the cluster gives one, and never for an endpoint of a stranger."""
    names, own = ROLES[scheme]
    return credentials.named(*names) is not None and secret_hosts.allows(credentials, endpoint, own)


def _logins(scheme: Scheme, credentials: Credentials, endpoint: str, allowed: AllowedHosts = ALL) -> Iterator[str]:
    """Where the library logs in by the pod's role; nothing where none is used. The cloud's own hosts need no entry in
    `allowed`; one that a variable names does. Raises `Problem` (HostNotAllowed).
    """
    if not _role(credentials, endpoint, scheme):
        return
    match scheme:
        case Scheme.S3:
            own = [f"https://sts.{_region(credentials)}.amazonaws.com", "http://169.254.170.2"]
        case Scheme.Google:
            # a user's own login, and what its library asks about it
            own = ["https://accounts.google.com", "https://oauth2.googleapis.com", "http://metadata.google.internal"]
        case _:
            own = ["https://login.microsoftonline.com"]
    yield from (METADATA, *own)
    hosts = {origin(url)[1] for url in own}
    for url in filter(None, map(credentials.get, LOGINS[scheme])):
        named = url if "://" in url else f"http://{url}"
        _, host, port = origin(named)
        if host.lower() not in hosts and not _is_of_the_node(host):
            allowed.check(host, port)
        yield named


def _is_of_the_node(host: str) -> bool:
    """Whether an address is one where a cloud, or an agent on the node, gives a pod its role."""
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return host.lower() == "localhost"
    return address.is_loopback or address.is_link_local or address in AWS_LOCAL


def _s3(bucket: str, credentials: Credentials, options: Mapping[str, Any]) -> S3Store:
    key, secret = credentials.get("AWS_ACCESS_KEY_ID"), credentials.get("AWS_SECRET_ACCESS_KEY")
    endpoint = _s3_endpoint(credentials)
    given: dict[str, Any] = {"region": _region(credentials), "endpoint": endpoint}
    if key and secret:
        given |= {"access_key_id": key, "secret_access_key": secret}
        if token := credentials.get("AWS_SESSION_TOKEN"):
            given["session_token"] = token
    elif not _role(credentials, endpoint, Scheme.S3):
        given["skip_signature"] = True  # a public bucket; no node's own role without a word
    return S3Store(bucket, **given, **options)


def _google(bucket: str, credentials: Credentials, options: Mapping[str, Any]) -> GCSStore:
    given: dict[str, Any] = {}
    account = credentials.get("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY")
    if account and account.lstrip().startswith("{"):
        given["service_account_key"] = account
    elif account:
        given["service_account"] = account
    elif not _role(credentials, _google_endpoint(credentials), Scheme.Google):
        given["skip_signature"] = True
    if base := credentials.get("GOOGLE_BASE_URL"):
        given["base_url"] = base
    return GCSStore(bucket, **given, **options)


def _azure(container: str, credentials: Credentials, options: Mapping[str, Any]) -> AzureStore:
    given: dict[str, Any] = {"account_name": _account(credentials)}
    if endpoint := credentials.get("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"):
        given["endpoint"] = endpoint
    if key := credentials.get("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY"):
        given["account_key"] = key
    elif token := credentials.get("AZURE_STORAGE_SAS_TOKEN", "SAS_TOKEN"):
        given["sas_key"] = token
    elif not _role(credentials, _azure_endpoint(credentials), Scheme.Azure):
        given["skip_signature"] = True
    return AzureStore(container, **given, **options)


ENDPOINTS: Mapping[Scheme, Callable[[Credentials], str]] = {
    Scheme.S3: _s3_endpoint,
    Scheme.Google: _google_endpoint,
    Scheme.Azure: _azure_endpoint,
}
_STORES: Mapping[Scheme, _Opener] = {
    Scheme.S3: _s3,
    Scheme.Google: _google,
    Scheme.Azure: _azure,
}
