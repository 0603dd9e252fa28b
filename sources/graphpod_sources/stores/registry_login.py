"""Login at a container registry: what its 401 asks for, and the token that it gives (distribution's token auth)."""

import base64
import re
import threading
from collections.abc import Mapping
from urllib.parse import urlencode

from graphpod_sources.names import shown
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.stores.http_client import Http, Reply, origin, refusal

LARGEST = 1 << 20  # bytes
_PARAMETER = re.compile(r'([A-Za-z_]+)="([^"]*)"')


class Login:
    """The Authorization header of one repository, renewed when the registry asks again. Safe from any thread.

    `plain`: the host of a registry without TLS.
    """

    def __init__(self, http: Http, credentials: tuple[str, str] | None, scope: str, *, plain: str | None) -> None:
        self._http, self._credentials, self._scope, self._plain = http, credentials, scope, plain
        self._header: Mapping[str, str] = {}
        self._lock = threading.Lock()

    @property
    def header(self) -> Mapping[str, str]:
        return self._header

    def answer(self, challenge: str, used: Mapping[str, str], where: str) -> None:
        """Log in as `challenge` asks, unless another thread has since `used` was sent. Raises `Problem`."""
        with self._lock:
            if self._header is not used:
                return
            kind, _, rest = challenge.strip().partition(" ")
            said = {name.lower(): text for name, text in _PARAMETER.findall(rest[:4096])}
            if kind.lower() == "basic" and self._credentials:
                self._header = self._basic()
            elif kind.lower() == "bearer" and "realm" in said:
                self._header = {"Authorization": f"Bearer {self._token(said, where)}"}
            else:
                raise Problem(
                    Reason.Unauthorized,
                    f"{where}: the registry asks for a login ({shown(kind)})",
                    next_step="name a Secret of type kubernetes.io/dockerconfigjson in spec.model.secretRef",
                )

    def _basic(self) -> Mapping[str, str]:
        user, password = self._credentials or ("", "")
        return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}

    def _token(self, said: Mapping[str, str], where: str) -> str:
        """A token of the realm, which gets the credentials: over TLS, or at a registry without TLS at that host."""
        realm = said["realm"]
        scheme, host, _ = origin(realm)
        if scheme != "https" and host != self._plain:
            raise Problem(Reason.Unauthorized, f"{where}: its registry sends logins to {shown(realm)}, without TLS")
        query = urlencode({"service": said.get("service", ""), "scope": said.get("scope") or self._scope})
        secret = self._basic() if self._credentials else {}

        def judge(reply: Reply) -> Problem:
            if reply.status in (401, 403):
                return Problem(Reason.Unauthorized, f"{where}: {reply.where} refuses the login")
            return refusal(reply)

        with self._http.get(f"{realm}{'&' if '?' in realm else '?'}{query}", secret=secret, judge=judge) as reply:
            answer = reply.json(LARGEST)
        token = (answer.get("token") or answer.get("access_token")) if isinstance(answer, Mapping) else None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise Problem(Reason.ServerError, f"{where}: {reply.where} answers without a token")
        return token
