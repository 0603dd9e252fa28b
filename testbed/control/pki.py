"""Certificates and users: who may talk to this cluster."""

import base64
import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from testbed.command import run
from testbed.errors import TestbedError
from testbed.host.network import Addresses

MASTERS = "system:masters"
AUTHORITY = "basicConstraints=critical,CA:TRUE"
AGGREGATOR = "front-proxy-client"  # the API server, when it hands a request on to an APIService


@dataclass(frozen=True)
class User:
    name: str
    groups: tuple[str, ...] = ()


# Static-token users. Those without a group may do only what a test binds them to.
PEOPLE = (User("admin", (MASTERS,)), User("operator"), User("user1"), User("user2"), User("user3"), User("user4"))
COMPONENTS = (
    User("system:kube-controller-manager"),
    User("system:kube-scheduler"),
    User("system:kube-proxy"),
    User("system:coredns"),
    User("system:kwok", (MASTERS,)),
)


def node_user(i: int) -> User:
    return User(f"system:node:node{i}", ("system:nodes",))


def users(nodes: int) -> tuple[User, ...]:
    return (*PEOPLE, *COMPONENTS, *(node_user(i) for i in range(1, nodes + 1)))


def token_lines(tokens: dict[User, str]) -> str:
    """The API server's --token-auth-file: token,user,uid,"group1,group2"."""
    rows = []
    for user, token in tokens.items():
        groups = f',"{",".join(user.groups)}"' if user.groups else ""
        rows.append(f"{token},{user.name},{user.name}{groups}\n")
    return "".join(rows)


def read_token(tokens_csv: str, name: str) -> str:
    for line in tokens_csv.splitlines():
        token, user = line.split(",")[:2]
        if user == name:
            return token
    known = ", ".join(line.split(",")[1] for line in tokens_csv.splitlines())
    raise TestbedError(f"this testbed has no user {name!r}; there are: {known}")


def kubeconfig(cluster: str, server: str, ca: bytes, user: str, token: str) -> str:
    """One cluster, one user, as JSON, which is YAML. Nothing in it is a path, so it may be copied."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": cluster,
                    "cluster": {"server": server, "certificate-authority-data": base64.b64encode(ca).decode()},
                }
            ],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
            "current-context": cluster,
        },
        indent=1,
    )


@dataclass(frozen=True)
class Identities:
    """The folder of keys, certificates, tokens and kubeconfigs of one testbed."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def front_proxy_ca(self) -> Path:
        """Its holders may say `X-Remote-User`. An authority of its own: users' certificates must not."""
        return self.folder / "front-proxy-ca.crt"

    @property
    def tokens(self) -> Path:
        return self.folder / "tokens.csv"

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def kubeconfig(self, user: str) -> Path:
        return self.folder / f"{user.replace(':', '-')}.kubeconfig"

    def create(self, cluster: str, addresses: Addresses, nodes: int) -> None:
        self.folder.mkdir(parents=True, mode=0o700)
        run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.key("service-accounts")])
        self._certificate("ca", "/CN=graphpod-testbed", AUTHORITY, by=None)
        names = f"subjectAltName=IP:{addresses.api},IP:{addresses.kubernetes},IP:127.0.0.1,DNS:kubernetes.default.svc"
        self._certificate("apiserver", "/CN=kube-apiserver", names)
        self._certificate("kubelet-client", f"/O={MASTERS}/CN=kubelet-client", "extendedKeyUsage=clientAuth")
        self._certificate("front-proxy-ca", "/CN=graphpod-testbed-front-proxy", AUTHORITY, by=None)
        self._certificate(AGGREGATOR, f"/CN={AGGREGATOR}", "extendedKeyUsage=clientAuth", by="front-proxy-ca")
        tokens = {user: secrets.token_hex(16) for user in users(nodes)}
        self.tokens.write_text(token_lines(tokens))
        server = addresses.server
        for user, token in tokens.items():
            text = kubeconfig(cluster, server, self.ca.read_bytes(), user.name, token)
            self.kubeconfig(user.name).write_text(text)
            self.kubeconfig(user.name).chmod(0o600)

    def create_webhook(self, name: str) -> None:
        """A certificate for a webhook of the control plane's own loopback interface."""
        self._certificate(name, f"/CN={name}", "subjectAltName=IP:127.0.0.1")

    def _certificate(self, name: str, subject: str, extension: str, by: str | None = "ca") -> None:
        """A key and a certificate, signed by the authority `by`; self-signed with None."""
        request = self.folder / "request.cnf"  # without it openssl's own file would add CA:TRUE to every certificate
        request.write_text("[req]\ndistinguished_name = dn\n[dn]\n")
        signer: list[str | Path] = ["-CA", self.certificate(by), "-CAkey", self.key(by)] if by else []
        new: list[str | Path] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "365"]
        new += ["-subj", subject, "-addext", extension]
        files: list[str | Path] = ["-keyout", self.key(name), "-out", self.certificate(name)]
        run(["openssl", "req", "-x509", "-config", request, *new, *files, *signer])
