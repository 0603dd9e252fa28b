"""The key that clients must send: read from a file, and read again when the file is another.

A Secret's volume changes by a rename, so a new key counts within the time the kubelet takes to bring it, without a
restart. The file may hold several keys, one a line, so that clients can change over while both count.
"""

import hashlib
import hmac
import logging
from pathlib import Path

from graphpod_runtime.front.access.file_identity import identity_of

log = logging.getLogger("graphpod.front")

SCHEME = "bearer"


class ApiKeyInvalid(Exception):
    """The file cannot be read, or holds no key or what cannot be one; the message says which."""


class ApiKey:
    """The keys in `file`. Raises ApiKeyInvalid without any at the start; later the last ones that were good
    go on counting.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen = identity_of(file)
        self._digests = _read(file)

    def admits(self, authorization: str) -> bool:
        """Whether a request's Authorization header (`Bearer KEY`) holds one of the keys. In the same time for every
        wrong key.
        """
        scheme, _, key = authorization.partition(" ")
        return self.counts(key) and scheme.lower() == SCHEME

    def counts(self, key: str) -> bool:
        """Whether it is one of the keys. In the same time for every wrong key."""
        self._refresh()
        sent = _digest(key.strip())
        # every one is compared, and their digests: neither which nor how long a key is shows
        matches = [hmac.compare_digest(sent, digest) for digest in self._digests]
        return any(matches)

    def _refresh(self) -> None:
        found = identity_of(self._file)
        if found == self._seen:
            return
        self._seen = found
        try:
            self._digests = _read(self._file)
        except ApiKeyInvalid as error:
            log.error("%s; the keys read before go on counting", error)
        else:
            log.info("the API key was read again: %d count", len(self._digests))


def _read(file: Path) -> tuple[bytes, ...]:
    try:
        lines = [line.strip() for line in file.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ApiKeyInvalid(f"the API key in {file} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        if not all("!" <= character <= "~" for character in line):
            # its words would be unintended keys, and a header carries no other characters
            raise ApiKeyInvalid(f"line {number} of {file} is not an API key; use visible ASCII without spaces")
    if not any(lines):
        raise ApiKeyInvalid(f"{file} has no API key; write one a line")
    return tuple(_digest(line) for line in lines if line)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
