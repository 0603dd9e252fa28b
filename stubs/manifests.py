"""The stubs as objects of a cluster: values in, values out. All but the device plugin pass pod security `restricted`.

Host and pods reach a stub by its Service: port 80 (443 with TLS) for what it stands in for, 8081 for its control port.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from stubs.certificate import Certificate
from stubs.external_metrics import GROUP, VERSION
from stubs.web import CONTROL_PORT, PORT

Manifest = dict[str, Any]
IMAGE = "graphpod.dev/stubs:0.1.0"
DEVICE_PLUGIN_IMAGE = "graphpod.dev/stub-deviceplugin:0.1.0"
GPU = "nvidia.com/gpu"
PLUGINS = "/var/lib/kubelet/device-plugins"
"""Where every kubelet looks for device plugins, whatever its --root-dir is."""
LABEL = "app.kubernetes.io/name"
_USER = {"runAsNonRoot": True, "runAsUser": 65532, "fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
_SAFE = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
_HEALTHY = {"httpGet": {"path": "/healthz", "port": CONTROL_PORT}, "periodSeconds": 1}


def hub(namespace: str, token: str | None = None) -> list[Manifest]:
    """The model hub, empty: files are put through its control port."""
    return _web("hub", namespace, ["--folder=/data", *([f"--token={token}"] if token else [])])


def s3(namespace: str, key: str | None = None) -> list[Manifest]:
    """The object storage, empty likewise. `key` is ID:SECRET."""
    return _web("s3", namespace, ["--folder=/data", *([f"--key={key}"] if key else [])])


def external_metrics(namespace: str, certificate: Certificate) -> list[Manifest]:
    """The metrics API with its APIService; the certificate is one for `DNS:external-metrics.NAMESPACE.svc`."""
    name = "external-metrics"
    pem = base64.b64encode(certificate.key + certificate.certificate).decode()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": _metadata(name, namespace), "data": {"tls.pem": pem}}
    authority = {
        "group": GROUP,
        "version": VERSION,
        "service": {"name": name, "namespace": namespace, "port": 443},
        "caBundle": base64.b64encode(certificate.certificate).decode(),
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    service = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{VERSION}.{GROUP}", "labels": {LABEL: name}},
        "spec": authority,
    }
    web = _web(name, namespace, ["--tls=/tls/tls.pem"], port=443, volumes={"tls": {"secret": {"secretName": name}}})
    return [secret, *web, service]


def device_plugin(namespace: str, count: int = 2) -> list[Manifest]:
    """`count` devices of `nvidia.com/gpu` on every node. It mounts a folder of the host: a privileged namespace."""
    name = "device-plugin"
    container = {
        "name": name,
        "image": DEVICE_PLUGIN_IMAGE,
        "args": [f"-count={count}", "-prefix=$(NODE_NAME)-gpu", f"-control=:{CONTROL_PORT}"],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "securityContext": {**_SAFE, "runAsUser": 0, "runAsNonRoot": False},  # the folder is root's
        "readinessProbe": _HEALTHY,
        "volumeMounts": [{"name": "plugins", "mountPath": PLUGINS}],
    }
    spec = {
        "automountServiceAccountToken": False,
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": "plugins", "hostPath": {"path": PLUGINS, "type": "Directory"}}],
    }
    return [_workload("DaemonSet", name, namespace, spec)]


def _web(
    name: str, namespace: str, args: Sequence[str], port: int = 80, volumes: dict[str, Manifest] | None = None
) -> list[Manifest]:
    """Deployment and Service of a stub that is a module of the image."""
    mounted = {"data": {"emptyDir": {}}, **(volumes or {})}
    container = {
        "name": name,
        "image": IMAGE,
        "args": [f"stubs.{name.replace('-', '_')}", "--address=0.0.0.0", *args],
        "ports": [{"name": "web", "containerPort": PORT}, {"name": "control", "containerPort": CONTROL_PORT}],
        "readinessProbe": _HEALTHY,
        "securityContext": _SAFE,
        "volumeMounts": [{"name": volume, "mountPath": f"/{volume}"} for volume in mounted],
    }
    spec = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": _USER,
        "containers": [container],
        "volumes": [{"name": volume, **source} for volume, source in mounted.items()],
    }
    ports = [
        {"name": "web", "port": port, "targetPort": "web"},
        {"name": "control", "port": CONTROL_PORT, "targetPort": "control"},
    ]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(name, namespace),
        "spec": {"selector": {LABEL: name}, "ports": ports},
    }
    return [_workload("Deployment", name, namespace, spec), service]


def _workload(kind: str, name: str, namespace: str, pod: Manifest) -> Manifest:
    template = {"metadata": {"labels": {LABEL: name}}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": _metadata(name, namespace),
        "spec": {"selector": {"matchLabels": {LABEL: name}}, "template": template},
    }


def _metadata(name: str, namespace: str) -> Manifest:
    return {"name": name, "namespace": namespace, "labels": {LABEL: name}}
