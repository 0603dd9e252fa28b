"""kopf's connection to the API server: as kopf would make it, but for what its answers may hold."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
import kopf

Login = Callable[..., Coroutine[Any, Any, kopf.AiohttpSession | None]]


def with_responses(responses: type[aiohttp.ClientResponse]) -> Login:
    """A login handler whose sessions answer with `responses`.

    The same credentials are the same connection: so kopf knows those that were refused, and ends. With another
    connection for them it would try them without a pause, for ever.
    """
    made: dict[kopf.ConnectionInfo, kopf.AiohttpSession] = {}

    async def login(**kwargs: Any) -> kopf.AiohttpSession | None:
        found = kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)
        if found is None:
            return None
        if found not in made:
            made.clear()
            made[found] = _connection(found, responses)
        return made[found]

    return login


def _connection(found: kopf.ConnectionInfo, responses: type[aiohttp.ClientResponse]) -> kopf.AiohttpSession:
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=found.as_ssl_context()),
        headers={**found.as_http_headers(), "Accept-Encoding": "identity"},
        proxy=found.proxy_url,
        trust_env=found.trust_env,
        response_class=responses,
    )
    return kopf.AiohttpSession(
        server=found.server,
        default_namespace=found.default_namespace,
        expiration=found.expiration,
        aiohttp_session=session,
    )
