"""Command lines and files of the control plane: values in, values out."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testbed.control.pki import AGGREGATOR, Identities
from testbed.control.service_proxy import ServiceProxy
from testbed.host.network import Addresses

Binary = Callable[[str], Path]

# Metadata of everything but the health questions: tests count writes by user and find needless permissions in it.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*"]},
        {"level": "Metadata"},
    ],
}

NO_ENDPOINTS = ["--controllers=*,-endpoints-controller"]
"""Flags of a controller manager whose cluster has no kubelets. A twentieth of the requests of its tests would write
Endpoints, which no client reads since there are EndpointSlices."""


@dataclass(frozen=True)
class ControlPlane:
    folder: Path
    addresses: Addresses
    identities: Identities
    binary: Binary

    @property
    def audit_log(self) -> Path:
        return self.folder / "log" / "audit.log"

    def write_files(self) -> None:
        (self.folder / "audit-policy.json").write_text(json.dumps(AUDIT_POLICY))
        # Without a Node of its name it would wait half a minute. Being node 1 matters for traffic policy Local only.
        proxy = ServiceProxy("node1", self.addresses, self.identities)
        (self.folder / "kube-proxy.json").write_text(json.dumps(proxy.config(), indent=1))
        (self.folder / "Corefile").write_text(corefile(self.addresses, self.identities.kubeconfig("system:coredns")))

    def etcd(self) -> list[str | Path]:
        client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
        return [
            self.binary("etcd"),
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync=true",  # `down` deletes the data anyway
        ]

    def apiserver(self) -> list[str | Path]:
        ids = self.identities
        return [
            self.binary("kube-apiserver"),
            "--etcd-servers=http://127.0.0.1:2379",
            # the bridge's address, so that pods reach it; never 0.0.0.0
            f"--bind-address={self.addresses.api}",
            # and not the endpoint reconciler "none": the `kubernetes` Service would lead nowhere
            f"--advertise-address={self.addresses.api}",
            "--secure-port=6443",
            f"--cert-dir={ids.folder}",
            f"--tls-cert-file={ids.certificate('apiserver')}",
            f"--tls-private-key-file={ids.key('apiserver')}",
            f"--client-ca-file={ids.ca}",
            f"--token-auth-file={ids.tokens}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={ids.key('service-accounts')}",
            f"--service-account-signing-key-file={ids.key('service-accounts')}",
            f"--service-cluster-ip-range={self.addresses.services}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
            "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP",
            # without a client certificate `kubectl logs` and `exec` are refused by the kubelet
            f"--kubelet-client-certificate={ids.certificate('kubelet-client')}",
            f"--kubelet-client-key={ids.key('kubelet-client')}",
            # APIServices: the server behind one gets the user's name, and believes it because of this certificate
            f"--proxy-client-cert-file={ids.certificate(AGGREGATOR)}",
            f"--proxy-client-key-file={ids.key(AGGREGATOR)}",
            f"--requestheader-client-ca-file={ids.front_proxy_ca}",
            f"--requestheader-allowed-names={AGGREGATOR}",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            # straight to the endpoints: works without kube-proxy (level api) and without node 1
            "--enable-aggregator-routing=true",
            f"--audit-policy-file={self.folder}/audit-policy.json",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-maxsize=4096",  # MiB: one file, a test must not lose lines to rotation
            "--profiling=false",
        ]

    def controller_manager(self) -> list[str | Path]:
        ids = self.identities
        return [
            self.binary("kube-controller-manager"),
            *_leaderless(ids.kubeconfig("system:kube-controller-manager"), ids.folder),
            f"--service-account-private-key-file={ids.key('service-accounts')}",
            f"--root-ca-file={ids.ca}",
            f"--cluster-signing-cert-file={ids.ca}",
            f"--cluster-signing-key-file={ids.key('ca')}",
            "--use-service-account-credentials",
            # the default of 20 a second makes its forty controllers start for 5 s
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            # the default of 15 s is a long wait for a test of an autoscaler
            "--horizontal-pod-autoscaler-sync-period=1s",
        ]

    def scheduler(self) -> list[str | Path]:
        ids = self.identities
        kubeconfig = ids.kubeconfig("system:kube-scheduler")
        rates = ["--kube-api-qps=500", "--kube-api-burst=1000"]
        return [self.binary("kube-scheduler"), *_leaderless(kubeconfig, ids.folder), *rates]

    def kube_proxy(self) -> list[str | Path]:
        """For the host: its way to a service leads through no node, so every one of them may die."""
        return [self.binary("kube-proxy"), f"--config={self.folder}/kube-proxy.json"]

    def coredns(self) -> list[str | Path]:
        return [self.binary("coredns"), "-conf", self.folder / "Corefile"]


def _leaderless(kubeconfig: Path, certificates: Path) -> list[str]:
    """Flags of a component that stands alone and asks the API server who its own callers are."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--cert-dir={certificates}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
    ]


def corefile(addresses: Addresses, kubeconfig: Path) -> str:
    """Cluster names only: nothing outside is asked, so a pod that needs the world fails at once."""
    return f"""\
.:53 {{
    bind {addresses.api}
    errors
    health 127.0.0.1:8080
    ready 127.0.0.1:8181
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
    }}
    cache 5
}}
"""
