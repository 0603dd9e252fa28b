"""kube-proxy, which leads a service's address to its pods within one network namespace."""

from dataclasses import dataclass

from testbed.control.pki import Identities
from testbed.host.network import Addresses


@dataclass(frozen=True)
class ServiceProxy:
    node: str  # the Node object it waits for and whose endpoints are local to it
    addresses: Addresses
    identities: Identities

    def config(self) -> dict[str, object]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clusterCIDR": self.addresses.cluster,
            "clientConnection": {"kubeconfig": str(self.identities.kubeconfig("system:kube-proxy"))},
            "hostnameOverride": self.node,
            "healthzBindAddress": "127.0.0.1:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            # zero: leave the kernel's connection tracking settings alone
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }
