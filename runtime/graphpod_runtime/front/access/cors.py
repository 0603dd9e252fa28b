"""Which web pages may use the API from a browser. Off by default: then no answer has a header of CORS."""

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from graphpod_runtime.front.request_id import ANTHROPIC_HEADER, HEADER, request_id

METHODS = ("GET", "POST", "DELETE")
SHOWN = (HEADER.decode(), ANTHROPIC_HEADER.decode(), "x-ignored-fields", "retry-after", "endpoint-load-metrics")
"""Headers of answers that a page may read."""
PREFLIGHT_SECONDS = 600
"""So long a browser need not ask again."""


def with_cors(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """`app` for pages of these origins. A browser's question before a request (OPTIONS) is answered without an API
    key: browsers send none with it. Cookies and other credentials of a browser are not allowed; a page sends the key
    itself.
    """
    return _Cors(app, origins, METHODS, ["*"], allow_credentials=False, expose_headers=SHOWN, max_age=PREFLIGHT_SECONDS)


class _Cors(CORSMiddleware):
    """The answer to a browser's question has an id, as every answer."""

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        response.headers[HEADER.decode()] = request_id({"headers": request_headers.raw})
        return response
