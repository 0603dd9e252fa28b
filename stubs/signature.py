"""AWS signature version 4, as far as a server that checks it needs; pure.

Source: the S3 API reference, "Authenticating Requests: Using the Authorization Header". Signatures in the query
(presigned addresses) and the age of a signature are not looked at.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote

ALGORITHM = "AWS4-HMAC-SHA256"
_HEADER = re.compile(
    rf"{ALGORITHM} Credential=([^/]+)/(\d{{8}}/[^/]+/s3/aws4_request),\s*SignedHeaders=([^,]+),\s*Signature=(\w+)"
)


@dataclass(frozen=True, slots=True)
class Key:
    """An access key and its secret."""

    id: str
    secret: str


def objection(key: Key, method: str, path: str, query: str, headers: Mapping[str, str]) -> str | None:
    """The S3 error code for a request that this key did not sign, or None.

    `path` and `query` as they were sent, names of headers in lower case.
    """
    found = _HEADER.fullmatch(headers.get("authorization", ""))
    if found is None:
        return "AccessDenied"
    identity, scope, names, signature = found.groups()
    if identity != key.id:
        return "InvalidAccessKeyId"
    signed = names.split(";")
    if "host" not in signed or "x-amz-date" not in headers:
        return "AccessDenied"
    expected = sign(key.secret, scope, headers["x-amz-date"], canonical(method, path, query, headers, signed))
    return None if hmac.compare_digest(expected, signature) else "SignatureDoesNotMatch"


def canonical(method: str, path: str, query: str, headers: Mapping[str, str], signed: list[str]) -> str:
    """The request in the form that is signed. S3 encodes a path once: it stays as it was sent."""
    pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in parse_qsl(query, keep_blank_values=True))
    lines = [f"{name}:{' '.join(headers.get(name, '').split())}" for name in signed]
    payload = headers.get("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
    arguments = "&".join(f"{k}={v}" for k, v in pairs)
    return "\n".join([method, path, arguments, *lines, "", ";".join(signed), payload])


def sign(secret: str, scope: str, moment: str, request: str) -> str:
    """The signature, in hexadecimal, of a canonical request; `scope` is date/region/service/aws4_request."""
    key = b"AWS4" + secret.encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = "\n".join([ALGORITHM, moment, scope, hashlib.sha256(request.encode()).hexdigest()])
    return hmac.digest(key, text.encode(), "sha256").hex()
