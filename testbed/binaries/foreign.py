"""CRDs of other projects, out of their own Go modules: the real schemas of objects that our operator makes."""

import json
import os
import tempfile
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from testbed.command import run
from testbed.errors import TestbedError

DOWNLOAD_LIMIT = 300.0  # s


class Origin(NamedTuple):
    """A file in one version of a module; `digest` is go.sum's of the whole module."""

    module: str
    version: str
    digest: str
    file: str


def _monitoring(plural: str) -> Origin:
    return Origin(
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
        f"example/prometheus-operator-crd/monitoring.coreos.com_{plural}.yaml",
    )


class Foreign(Enum):
    """Each CRD by its name on a cluster."""

    PodMonitor = _monitoring("podmonitors")
    ServiceMonitor = _monitoring("servicemonitors")
    PrometheusRule = _monitoring("prometheusrules")
    GrafanaDashboard = Origin(
        "github.com/grafana/grafana-operator/v5",
        "v5.18.0",
        "h1:ei7N2VfjsRjY8iprenH1IDV783WeV7CP5VNp//sB4hI=",
        "config/crd/bases/grafana.integreatly.org_grafanadashboards.yaml",
    )
    ScaledObject = Origin(
        "github.com/kedacore/keda/v2",
        "v2.18.1",
        "h1:h6bRt/IOxxtZpJlHSqhdH/lcInH7Z9obxg/JvWOmGAw=",
        "config/crd/bases/keda.sh_scaledobjects.yaml",
    )
    HTTPRoute = Origin(
        "sigs.k8s.io/gateway-api",
        "v1.4.1",
        "h1:NPxFutNkKNa8UfLd2CMlEuhIPMQgDQ6DXNKG9sHbJU8=",
        "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
    )

    LeaderWorkerSet = Origin(
        "sigs.k8s.io/lws",
        "v0.8.0",
        "h1:DdhJ8QabwTfWgbgaHH2gdf8twliioHaoSfmDXRYEVU0=",
        "config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",
    )

    @property
    def crd(self) -> str:
        """Name of the CustomResourceDefinition."""
        group, plural = Path(self.value.file).stem.split("_")
        return f"{plural}.{group}"

    def manifest(self) -> Path:
        """The file, downloaded unless Go's cache has it. Raises `TestbedError` when it is not what it was."""
        origin = self.value
        env = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod", "GOWORK": "off"}
        with tempfile.TemporaryDirectory() as nowhere:  # in a module's folder its own requirements would count
            argv = ["go", "-C", nowhere, "mod", "download", "-json", f"{origin.module}@{origin.version}"]
            answer = json.loads(run(argv, timeout=DOWNLOAD_LIMIT, env=env))
        if answer["Sum"] != origin.digest:
            raise TestbedError(f"{origin.module}@{origin.version} has digest {answer['Sum']}, not {origin.digest}")
        return Path(answer["Dir"]) / origin.file
