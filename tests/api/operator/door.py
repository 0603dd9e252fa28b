"""The API server as the judge of an InferenceService: one connection, kept open, and nothing is stored."""

import contextlib
import http.client
import json
import ssl
from base64 import b64decode
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import yaml

from testbed import Cluster
from tests.places import service

Manifest = dict[str, Any]
ROOT = "/apis/graphpod.dev/v1alpha1/namespaces/{namespace}/inferenceservices"


@dataclass(frozen=True)
class Judgement:
    """What the server said: its refusal, or None; its warnings; what it would have stored."""

    refusal: str | None
    warnings: tuple[str, ...]
    stored: Manifest


class Conflict(Exception):
    """The object has changed since it was read."""


class Door:
    """Asks the server to create and change InferenceServices, always as a dry run."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        authority = b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        self._context = ssl.create_default_context(cadata=authority)
        token = config["users"][0]["user"]["token"]
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._address = urlsplit(cluster.address)
        self._namespace = namespace

    def __enter__(self) -> Self:
        host, port = self._address.hostname, self._address.port
        assert host is not None
        self._connection = http.client.HTTPSConnection(host, port, context=self._context, timeout=30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def judge(self, spec: Any, *, name: str = "demo", strict: bool = True) -> Judgement:
        """Create with this spec; `strict` refuses unknown fields, else they are warned of."""
        validation = "Strict" if strict else "Warn"
        return self._ask("POST", self._namespace, "", {**service(name), "spec": spec}, validation)

    def judge_change(self, namespace: str, spec: Any, *, name: str = "demo") -> Judgement:
        """Give an InferenceService that exists this spec instead; once more where its status was written meanwhile."""
        while True:
            with contextlib.suppress(Conflict):
                return self._ask("PUT", namespace, f"/{name}", self._replacement(namespace, name, spec), "Strict")

    def _replacement(self, namespace: str, name: str, spec: Any) -> Manifest:
        self._connection.request("GET", ROOT.format(namespace=namespace) + f"/{name}", headers=self._headers)
        found: Manifest = json.loads(self._connection.getresponse().read())
        return {**found, "spec": spec}

    def _ask(self, method: str, namespace: str, name: str, manifest: Manifest, validation: str) -> Judgement:
        path = f"{ROOT.format(namespace=namespace)}{name}?dryRun=All&fieldValidation={validation}"
        self._connection.request(method, path, body=json.dumps(manifest), headers=self._headers)
        answer = self._connection.getresponse()
        body = json.loads(answer.read())
        if answer.status == 409:
            raise Conflict(body["message"])
        assert answer.status in (200, 201, 400, 422), body
        refusal = None if answer.status < 300 else body["message"]
        return Judgement(refusal, tuple(answer.headers.get_all("Warning") or ()), body)
