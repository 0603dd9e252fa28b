"""Where a Secret may be sent.

Whoever may write services names the Secret and the host, and need not be allowed to read the Secret. So the Secret
itself says where it goes: its key `hosts` has HOST, HOST:PORT or *.DOMAIN each, http://HOST for one without TLS.
Without it, a key that is named after a service goes to that service's own hosts alone. An endpoint that the Secret
names itself needs no mention. What comes from environment variables is the caller's own and goes anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from graphpod_sources.credentials import Credentials
from graphpod_sources.names import shown
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.stores.http_client import PORTS, address, origin
from graphpod_sources.stores.proxies import proxy_for

HOSTS = "hosts"
MOST_HOSTS = 64
NO_HOST = re.compile(r"(?!)")
"""The own hosts of what belongs to no service."""
_ENTRY = re.compile(r"(http://|https://)?(\*\.)?([a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:]+\])(:[0-9]{1,5})?")


def check(credentials: Credentials, keys: Sequence[str], url: str, own: re.Pattern[str] = NO_HOST) -> None:
    """Raises `Problem` (SecretNotForHost) where one of `keys` is of the Secret and may not be sent to `url`."""
    used = [key for key in keys if key in credentials.secret]
    if used and not allows(credentials, url, own):
        scheme, host, port = origin(url)
        entry = f"{'http://' if scheme == 'http' else ''}{host}{'' if port == PORTS[scheme] else f':{port}'}"
        raise Problem(
            Reason.SecretNotForHost,
            f"the Secret does not say that its {used[0]} may be sent to {address(f'{scheme}://{host}:{port}')}",
            next_step=f"whoever owns the Secret adds {entry} to its key {HOSTS}",
        )


def allows(credentials: Credentials, url: str, own: re.Pattern[str]) -> bool:
    """Whether the Secret may be sent to `url`. Without TLS every proxy on the way reads it, so that one counts, too."""
    scheme, host, port = origin(url)
    if scheme == "https":
        mine = port == PORTS[scheme] and own.fullmatch(host) is not None
        return mine or _named(credentials, scheme, host, port)
    if not _named(credentials, scheme, host, port):
        return False
    proxy = proxy_for(scheme, host)
    return proxy is None or _named(credentials, "http", proxy.host, proxy.port)


def _named(credentials: Credentials, scheme: str, host: str, port: int) -> bool:
    host = host.lower()
    for plain, domain, name, at in _entries(credentials):
        fits = host.endswith(f".{name}") if domain else host == name.strip("[]")
        if fits and plain == (scheme == "http") and port == (at or PORTS[scheme]):
            return True
    return False


def _entries(credentials: Credentials) -> Iterator[tuple[bool, bool, str, int | None]]:
    """Without TLS or with; a domain or one host; its name; its port. Raises `Problem` (Unauthorized)."""
    if HOSTS not in credentials.secret:
        return
    entries = re.split(r"[\s,]+", credentials.values[HOSTS].strip().lower())
    for entry in filter(None, entries):
        found = _ENTRY.fullmatch(entry)
        if found is None or len(entries) > MOST_HOSTS:
            wrong = f"has {shown(entry)}" if found is None else f"has more than {MOST_HOSTS} entries"
            raise Problem(
                Reason.Unauthorized,
                f"the key {HOSTS} of the Secret {wrong}",
                next_step="write HOST, HOST:PORT, *.DOMAIN or http://HOST each, separated by commas",
            )
        yield found[1] == "http://", found[2] is not None, found[3], int(found[5][1:]) if found[5] else None
