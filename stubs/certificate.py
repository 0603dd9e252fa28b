"""A self-signed server certificate for a stub that speaks TLS; made where the stub is started from, never in a pod."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificate:
    """PEM texts. The certificate is its own authority."""

    certificate: bytes
    key: bytes


def make(names: Sequence[str]) -> Certificate:
    """A certificate for these subject alternative names, such as `IP:127.0.0.1` and `DNS:hub.stubs.svc`; one year."""
    with tempfile.TemporaryDirectory(prefix="graphpod-stub-") as place:
        folder = Path(place)
        request = folder / "request.cnf"  # openssl's own file would have a say otherwise
        request.write_text("[req]\ndistinguished_name = dn\n[dn]\n")
        key, certificate = folder / "tls.key", folder / "tls.crt"
        subprocess.run(
            [
                *(
                    "openssl",
                    "req",
                    "-x509",
                    "-config",
                    request,
                    "-newkey",
                    "ec",
                    "-pkeyopt",
                    "ec_paramgen_curve:P-256",
                ),
                *("-nodes", "-days", "365", "-subj", "/CN=graphpod-stub", "-keyout", key, "-out", certificate),
                *("-addext", f"subjectAltName={','.join(names)}", "-addext", "basicConstraints=critical,CA:TRUE"),
            ],
            check=True,
            capture_output=True,
            timeout=30,
        )
        return Certificate(certificate.read_bytes(), key.read_bytes())
