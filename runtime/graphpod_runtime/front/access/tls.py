"""The certificate of the API port: read from a folder, and read again when it is another.

The folder is a Secret of type kubernetes.io/tls as the kubelet mounts it: `tls.crt` with the chain and `tls.key`. The
kubelet brings another one by a rename. Each handshake looks whether it has, so the next connection gets the new
certificate and open ones go on. A pair that cannot be used is logged, and the earlier one stays.
"""

import logging
import ssl
from pathlib import Path

from graphpod_runtime.front.access.file_identity import Identity, identity_of

log = logging.getLogger("graphpod.front")

CERTIFICATE, KEY = "tls.crt", "tls.key"
HANDSHAKE_SECONDS = 10.0
"""A client that has not ended its handshake then loses its connection."""


class TlsInvalid(Exception):
    """The folder has no certificate and key that belong together; the message says what is wrong."""


class Certificate:
    """The certificate in `folder`. Raises TlsInvalid without a usable one at the start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._identity()
        self._current = _context(folder)
        self.context = _context(folder)
        """For the server. Its handshakes go on with the current certificate."""
        self.context.sni_callback = self._choose

    def _choose(self, handshake: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        self._refresh()
        handshake.context = self._current

    def _refresh(self) -> None:
        found = self._identity()
        if found == self._seen:
            return
        # Noted before it is read: a file that changes meanwhile is read again.
        self._seen = found
        try:
            self._current = _context(self._folder)
        except TlsInvalid as error:
            log.error("%s; the certificate read before goes on", error)
        else:
            log.info("the certificate in %s was read again", self._folder)

    def _identity(self) -> tuple[Identity | None, ...]:
        """What distinguishes one pair of files from another."""
        return tuple(identity_of(self._folder / name) for name in (CERTIFICATE, KEY))


def _context(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # An empty password, since OpenSSL asks at the terminal for that of an encrypted key.
        context.load_cert_chain(folder / CERTIFICATE, folder / KEY, password="")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        what = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise TlsInvalid(
            f"{folder} has no usable certificate ({what}); it needs {CERTIFICATE} and the {KEY} that belongs to it, "
            "in PEM and not encrypted"
        ) from error
    return context
