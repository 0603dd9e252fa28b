"""An APIService's server is asked by the API server, on behalf of a user it names and vouches for."""

import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from testbed import Cluster
from testbed.host import record
from testbed.host.network import Addresses
from tests.aggregation import JsonHandler, served_at

GROUP, VERSION = "stub.graphpod.dev", "v1"


class _Server(JsonHandler):
    """Answers discovery, and for a resource the user that it was told of, with the name in the caller's certificate."""

    def do_GET(self) -> None:
        certificate = self.connection.getpeercert()  # type: ignore[attr-defined]
        caller = [value for rdn in certificate.get("subject", ()) for key, value in rdn if key == "commonName"]
        answer: dict[str, Any] = {"kind": "APIResourceList", "groupVersion": f"{GROUP}/{VERSION}", "resources": []}
        if self.path.endswith("/whoami"):
            answer = {"user": self.headers["X-Remote-User"], "vouched for by": caller}
        self.answer(answer)


@pytest.fixture
def server(api_cluster: Cluster, tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A TLS server on the host's end of the testbed's wire. Only the front proxy gets in."""
    host = Addresses(record.load(api_cluster.name).id).host
    pair = tmp_path / "key.pem", tmp_path / "certificate.pem"
    new = "openssl req -x509 -nodes -days 1 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -subj /CN=stub"
    subprocess.run([*new.split(), "-keyout", pair[0], "-out", pair[1]], check=True, capture_output=True, timeout=30)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair[1], pair[0])
    context.verify_mode = ssl.CERT_REQUIRED
    settings = api_cluster.kubectl(
        "-n", "kube-system", "get", "configmap", "extension-apiserver-authentication", "-o", "json"
    )
    context.load_verify_locations(cadata=json.loads(settings)["data"]["requestheader-client-ca-file"])
    with ThreadingHTTPServer((host, 0), _Server) as http:
        http.socket = context.wrap_socket(http.socket, server_side=True)
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield host, http.server_port
        http.shutdown()


def test_an_api_service_is_asked_in_the_name_of_the_user_by_the_front_proxy(
    api_cluster: Cluster, server: tuple[str, int], eventually: Any
):
    host, port = server
    listed = json.dumps(served_at(host, port, name="stub", group=GROUP, version=VERSION))
    api_cluster.kubectl("apply", "-f", "-", input=listed)
    try:
        state = "jsonpath={.status.conditions[?(@.type=='Available')].status}"
        eventually(lambda: api_cluster.kubectl("get", "apiservice", f"{VERSION}.{GROUP}", "-o", state) == "True")

        def whoami() -> Any:
            """The way to the server opens after the condition is written."""
            return json.loads(api_cluster.kubectl("get", "--raw", f"/apis/{GROUP}/{VERSION}/whoami"))

        assert eventually(whoami) == {"user": "admin", "vouched for by": ["front-proxy-client"]}
    finally:
        api_cluster.kubectl("delete", "--ignore-not-found", "-f", "-", input=listed)
