"""The controller of LeaderWorkerSets next to the control plane: its kind, its webhooks and its configuration.

Its webhooks cannot be left out: they give each pod its place in its group. The API server reaches them on the loopback
interface that all of the control plane has.
"""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.control.pki import Identities

COMPONENT = "lws"
PORT, HEALTH = 9443, 8081
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
SETS = {
    "apiGroups": ["leaderworkerset.x-k8s.io"],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["leaderworkersets"],
}
WEBHOOKS = {
    "Mutating": {"/mutate--v1-pod": PODS, "/mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset": SETS},
    "Validating": {"/validate-leaderworkerset-x-k8s-io-v1-leaderworkerset": SETS},
}
"""What its own manifests register; the one that validates pods says yes to all."""

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Groups:
    folder: Path
    identities: Identities

    def write_files(self) -> None:
        """Its configuration and the certificate of its webhooks."""
        self._certificates.mkdir(parents=True, exist_ok=True)
        self.identities.create_webhook(COMPONENT)
        for name, made in (("tls.crt", self.identities.certificate), ("tls.key", self.identities.key)):
            (self._certificates / name).write_bytes(made(COMPONENT).read_bytes())
        config = {
            "apiVersion": "config.lws.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"host": "127.0.0.1", "port": PORT, "certDir": str(self._certificates)},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{HEALTH}"},
        }
        self._config.write_text(json.dumps(config, indent=1))

    def manager(self, binary: Path) -> list[str | Path]:
        """Its command line."""
        kubeconfig = self.identities.kubeconfig("admin")
        return [binary, f"--config={self._config}", f"--kubeconfig={kubeconfig}", "--zap-log-level=info"]

    def webhooks(self) -> list[Manifest]:
        """What leads the API server to it."""
        bundle = base64.b64encode(self.identities.ca.read_bytes()).decode()
        return [_webhooks(kind, paths, bundle) for kind, paths in WEBHOOKS.items()]

    @property
    def _config(self) -> Path:
        return self.folder / "lws.json"

    @property
    def _certificates(self) -> Path:
        return self.folder / "lws-certificates"


def _webhooks(kind: str, paths: dict[str, Manifest], bundle: str) -> Manifest:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": COMPONENT},
        "webhooks": [
            {
                "name": f"{kind.lower()}-{number}.lws.x-k8s.io",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "clientConfig": {"url": f"https://127.0.0.1:{PORT}{path}", "caBundle": bundle},
                "rules": [rule],
            }
            for number, (path, rule) in enumerate(paths.items())
        ],
    }
