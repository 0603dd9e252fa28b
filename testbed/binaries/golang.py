"""Kubernetes and the tools around it, built from Go modules into a cache keyed by everything that shapes the bytes.

Each family has its own go.mod and go.sum under testbed/go: minimal version selection over one shared module would
raise one tool's libraries with another's. The families of monitoring alone have one version of what they share, so that
Go compiles it once. A binary is installed only after its version check passes.
"""

import fcntl
import hashlib
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from testbed.command import run
from testbed.errors import TestbedError
from testbed.paths import PACKAGE, cache_root
from testbed.process import tail

KUBERNETES, ETCD, COREDNS, KWOK, HELM4, HELM3 = "1.36.3", "3.7.1", "1.13.1", "0.8.0", "4.2.4", "3.21.4"
PROMETHEUS = "3.14.0"  # as a module: v0.314.0
DASHBOARD_LINTER = "0.2.0"
# Alertmanager's modules after 0.31 lack the built pages that its binary embeds.
ALERTMANAGER, KUBE_STATE_METRICS, PROMETHEUS_OPERATOR = "0.31.1", "2.20.0", "0.93.0"
CRANE = "0.22.0"
LEADER_WORKER_SET = "0.8.0"
_MAJOR, _MINOR, _ = KUBERNETES.split(".")
GO_AT_LEAST = (1, 26)
BUILD_LIMIT = 1800.0  # s for one binary: cold kube-apiserver needs 170 s on two idle cores
HEARTBEAT = 10.0  # s
BUILT = "built.json"  # next to each binary: how it was built

Report = Callable[[str], None]

# Without the stamps `/version` is not a semantic version, and Helm's and kubectl's version checks go wrong.
_BASE = "k8s.io/component-base/version"
_KUBE_STAMPS = {
    f"{_BASE}.gitVersion": f"v{KUBERNETES}",
    f"{_BASE}.gitMajor": _MAJOR,
    f"{_BASE}.gitMinor": _MINOR,
    f"{_BASE}.gitTreeState": "clean",
    f"{_BASE}.gitCommit": "0" * 40,
    f"{_BASE}.buildDate": "2026-01-01T00:00:00Z",
    "k8s.io/client-go/pkg/version.gitVersion": f"v{KUBERNETES}",
}


@dataclass(frozen=True)
class Tool:
    name: str  # what the project calls it
    family: str  # folder under testbed/go
    package: str
    file: str  # file name of the binary
    version_args: tuple[str, ...]
    version: str  # must occur in what the version command prints
    stamps: tuple[tuple[str, str], ...] = ()
    tags: tuple[str, ...] = ()  # build tags

    @property
    def flags(self) -> tuple[str, ...]:
        linker = " ".join(["-s", "-w", *(f"-X {k}={v}" for k, v in self.stamps)])
        tags = ("-tags", ",".join(self.tags)) if self.tags else ()
        return ("-trimpath", "-mod=readonly", *tags, "-ldflags", linker)


def _kube(name: str, *version_args: str, version: str = f"Kubernetes v{KUBERNETES}") -> Tool:
    package = f"k8s.io/kubernetes/cmd/{name}"
    return Tool(name, "kube", package, name, version_args or ("--version",), version, tuple(_KUBE_STAMPS.items()))


def _helm(major: int, version: str) -> Tool:
    module = f"helm.sh/helm/v{major}"
    stamps = {f"{module}/internal/version.version": f"v{version}"}
    if (
        major == 3
    ):  # it believes in Kubernetes 1.20 otherwise, and refuses charts; Helm 4 reads its own build information
        for place in ("pkg/chartutil", "pkg/lint/rules"):
            stamps[f"{module}/{place}.k8sVersionMajor"], stamps[f"{module}/{place}.k8sVersionMinor"] = _MAJOR, _MINOR
    name, words = f"helm{major}", ("version", "--short")
    return Tool(name, name, f"{module}/cmd/helm", "helm", words, f"v{version}", tuple(stamps.items()))


def _prometheus(name: str) -> Tool:
    package, stamps = f"github.com/prometheus/prometheus/cmd/{name}", {_VERSION_STAMP: PROMETHEUS}
    said = f"{name}, version {PROMETHEUS}"
    return Tool(name, "prometheus", package, name, ("--version",), said, tuple(stamps.items()), _DISCOVERY)


_VERSION_STAMP = "github.com/prometheus/common/version.Version"
# Without them it links the SDKs of every cloud.
_DISCOVERY = ("remove_all_sd", "enable_kubernetes_sd")

_LINTER = "github.com/grafana/dashboard-linter"
_KWOK, _KWOK_STAMP = "sigs.k8s.io/kwok/cmd/kwok", "sigs.k8s.io/kwok/pkg/consts.Version"

# In the order of use: an API server is there first.
TOOLS = (
    Tool("etcd", "etcd", "go.etcd.io/etcd/server/v3", "etcd", ("--version",), f"etcd Version: {ETCD}"),
    _kube("kube-apiserver"),
    _kube("kube-controller-manager"),
    _kube("kubectl", "version", "--client", version=f"Client Version: v{KUBERNETES}"),
    _kube("kube-scheduler"),
    _kube("kubelet"),
    _kube("kube-proxy"),
    # our own main, with the plugins that are used: the upstream one links every plugin
    Tool("coredns", "coredns", ".", "coredns", ("-version",), f"CoreDNS-{COREDNS}"),
    Tool("kwok", "kwok", _KWOK, "kwok", ("--version",), f"kwok version v{KWOK}", ((_KWOK_STAMP, KWOK),)),
    _helm(4, HELM4),
    _helm(3, HELM3),
    # our own: its version is the one its source says
    Tool("deviceplugin", "deviceplugin", ".", "deviceplugin", ("-version",), "deviceplugin 0.1.0"),
)
# What measures what the others do. No cluster needs them: `make monitoring` and the tests that use them build them.
_ALERTMANAGER, _KUBE_STATE_METRICS = (
    "github.com/prometheus/alertmanager/cmd/alertmanager",
    "k8s.io/kube-state-metrics/v2",
)
MONITORING = (
    *map(_prometheus, ("promtool", "prometheus")),
    Tool(
        *("alertmanager", "alertmanager", _ALERTMANAGER, "alertmanager", ("--version",)),
        f"alertmanager, version {ALERTMANAGER}",
        ((_VERSION_STAMP, ALERTMANAGER),),
    ),
    Tool(
        *("kube-state-metrics", "kubestatemetrics", _KUBE_STATE_METRICS, "kube-state-metrics", ("version",)),
        f"kube-state-metrics, version {KUBE_STATE_METRICS}",
        ((_VERSION_STAMP, KUBE_STATE_METRICS),),
    ),
    # it has no version command: a rule of this release says which one it is
    Tool("dashboard-linter", "dashboardlinter", _LINTER, "dashboard-linter", ("rules",), "`panel-no-targets-rule`"),
    # our own, around the Prometheus operator's packages
    Tool(
        *("prometheusconfig", "prometheusconfig", ".", "prometheusconfig", ("-version",)),
        f"prometheusconfig 0.1.0 for prometheus-operator {PROMETHEUS_OPERATOR}",
    ),
)
# A registry of somebody else, for `make sources`.
_CRANE = "github.com/google/go-containerregistry/cmd/crane"
SOURCES = (Tool("crane", "crane", _CRANE, "crane", ("version",), CRANE, ((f"{_CRANE}/cmd.Version", CRANE),)),)
# The controller of LeaderWorkerSets, for `make groups-node`.
_LWS = "sigs.k8s.io/lws"
GROUPS = (
    Tool(
        *("lws", "lws", f"{_LWS}/cmd", "lws", ("--version",), f"Version: v{LEADER_WORKER_SET}"),
        ((f"{_LWS}/pkg/version.GitVersion", f"v{LEADER_WORKER_SET}"),),
    ),
)
NAMES = tuple(tool.name for tool in TOOLS)
BY_NAME = {tool.name: tool for tool in (*TOOLS, *MONITORING, *SOURCES, *GROUPS)}
API_TOOLS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
SIM_TOOLS = (*API_TOOLS, "kube-scheduler", "kwok")
NODE_TOOLS = (*API_TOOLS, "kube-scheduler", "kubelet", "kube-proxy", "coredns")


def check_go(text: str) -> str:
    """The version in `go version`'s answer, such as `go1.26.8`; refuses one older than the modules need."""
    found = re.search(r"\bgo(\d+)\.(\d+)\S*", text)
    if found is None:
        raise TestbedError(f"`go version` answered {text.strip()!r}, which names no version: install Go 1.26")
    if (int(found[1]), int(found[2])) < GO_AT_LEAST:
        raise TestbedError(
            f"Go {found[0][2:]} is too old, Kubernetes {KUBERNETES} needs Go 1.26: install it and put it first on PATH"
        )
    return found[0]


def go_version() -> str:
    try:
        text = subprocess.run(["go", "version"], capture_output=True, text=True, timeout=30, check=True).stdout
    except FileNotFoundError as e:
        raise TestbedError(
            "Go is not installed or not on PATH: install Go 1.26 (go.dev/dl) and put its bin folder on PATH"
        ) from e
    return check_go(text)


def key(go: str, tool: Tool, mod: bytes, sums: bytes, *sources: bytes) -> str:
    """Names the bytes a build gives: module files, our own sources, toolchain and flags. 16 hex digits."""
    digest = hashlib.sha256()
    for part in (go.encode(), tool.package.encode(), *(f.encode() for f in tool.flags), mod, sums, *sources):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:16]


def location(tool: Tool, go: str) -> Path:
    """Where the binary belongs, built or not."""
    folder = PACKAGE / "go" / tool.family
    files = (folder / "go.mod", folder / "go.sum", *sorted(folder.rglob("*.go")))
    name = key(go, tool, *(file.read_bytes() for file in files))
    return cache_root() / "bin" / f"{tool.name}-{name}" / tool.file


def binary(name: str) -> Path:
    """A built tool. Raises `TestbedError` when it is unknown or not built."""
    if name not in BY_NAME:
        raise TestbedError(f"no tool is called {name!r}; there are: {', '.join(BY_NAME)}")
    path = location(BY_NAME[name], go_version())
    if not path.exists():
        raise TestbedError(f"{name} is not built (looked at {path}): run `python3 -m testbed build`")
    return path


def build(names: Iterable[str] = NAMES, report: Report = print) -> dict[str, Path]:
    """Builds what the cache lacks; the binaries by name. With a warm cache it only looks."""
    go = go_version()
    places = {name: location(BY_NAME[name], go) for name in names}
    if all(path.exists() for path in places.values()):
        return places
    began = time.monotonic()
    cache_root().mkdir(parents=True, exist_ok=True)
    with (cache_root() / "build.lock").open("w") as lock:
        _lock(lock.fileno(), report)
        missing = [name for name, path in places.items() if not path.exists()]
        for n, name in enumerate(missing, 1):
            label = f"[{n}/{len(missing)}] {name}"
            report(f"{label}: building with {go} …")
            seconds = _build(BY_NAME[name], places[name], label, report)
            report(f"{label}: {seconds:.0f} s, {places[name].stat().st_size / 1e6:.0f} MB")
        there = len(places) - len(missing)
        report(f"binaries: {len(missing)} built in {time.monotonic() - began:.0f} s, {there} were there")
    return places


def _lock(descriptor: int, report: Report) -> None:
    began = time.monotonic()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            waited = time.monotonic() - began
            if waited > BUILD_LIMIT:
                raise TestbedError(
                    f"another build holds {cache_root()}/build.lock for {waited:.0f} s: look for `go build`"
                ) from None
            report(f"another build is running, waiting ({waited:.0f} s)")
            time.sleep(HEARTBEAT)


def _build(tool: Tool, place: Path, label: str, report: Report) -> float:
    place.parent.mkdir(parents=True, exist_ok=True)
    draft, log = place.parent / f".{place.name}.draft", place.parent / "build.log"
    env = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}
    began = time.monotonic()
    with log.open("w") as out:
        argv = ["go", "build", *tool.flags, "-o", str(draft), tool.package]
        go = subprocess.Popen(argv, cwd=PACKAGE / "go" / tool.family, env=env, stdout=out, stderr=out)
        try:
            while go.poll() is None:
                _beat(go, began, log, label, report)
        finally:
            if go.poll() is None:
                go.kill()
                go.wait()
    if go.returncode != 0:
        raise TestbedError(f"building {tool.name} failed with status {go.returncode}\n{tail(log)}")
    said = run([draft, *tool.version_args], timeout=60)
    if tool.version not in said:
        draft.unlink()
        raise TestbedError(
            f"{tool.name} says {said.strip()!r} but must say {tool.version!r}:"
            f" testbed/go/{tool.family}/go.mod and the table in golang.py disagree"
        )
    seconds = time.monotonic() - began
    (place.parent / BUILT).write_text(json.dumps({"tool": tool.name, "go": go_version(), "seconds": round(seconds, 1)}))
    draft.rename(place)
    return seconds


def build_seconds(place: Path) -> float | None:
    """How long this binary's build took, with whatever Go's own cache had then; None when that is not known."""
    note = place.parent / BUILT
    return float(json.loads(note.read_text())["seconds"]) if note.exists() else None


def _beat(go: subprocess.Popen[bytes], began: float, log: Path, label: str, report: Report) -> None:
    try:
        go.wait(timeout=HEARTBEAT)
    except subprocess.TimeoutExpired:
        elapsed = time.monotonic() - began
        if elapsed > BUILD_LIMIT:
            raise TestbedError(f"{label}: not built within {BUILD_LIMIT:.0f} s\n{tail(log)}") from None
        quiet = time.time() - log.stat().st_mtime
        report(f"{label}: {elapsed:.0f} s, {doing(log.read_text(errors='replace'), quiet)}")


def doing(said: str, quiet: float) -> str:
    """What `go build` does now: it prints its downloads as they begin and is silent for `quiet` s while it compiles."""
    lines = said.splitlines()
    return lines[-1] if lines and quiet < HEARTBEAT else "compiling"
