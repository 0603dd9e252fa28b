import re
import shutil

import pytest

from testbed.binaries import golang
from testbed.errors import TestbedError

TOOL = golang.BY_NAME["kubelet"]


def test_the_cache_key_changes_with_toolchain_flags_and_module_files():
    base = golang.key("go1.26.8", TOOL, b"mod", b"sum")
    others = {
        golang.key("go1.26.9", TOOL, b"mod", b"sum"),
        golang.key("go1.26.8", TOOL, b"mod2", b"sum"),
        golang.key("go1.26.8", TOOL, b"mod", b"sum2"),
        golang.key("go1.26.8", TOOL, b"mod", b"sum", b"source"),
        golang.key("go1.26.8", golang.BY_NAME["kube-proxy"], b"mod", b"sum"),
        golang.key("go1.26.8", golang.Tool(**{**vars(TOOL), "stamps": ()}), b"mod", b"sum"),
    }
    assert base == golang.key("go1.26.8", TOOL, b"mod", b"sum")
    assert len(others | {base}) == 7


def test_a_changed_go_sum_rebuilds_its_family_and_no_other(tmp_path, monkeypatch):
    """What is there is not built again, and what is there is found by this path alone."""
    shutil.copytree(golang.PACKAGE / "go", tmp_path / "go")
    monkeypatch.setattr(golang, "PACKAGE", tmp_path)
    before = {tool.name: golang.location(tool, "go1.26.8") for tool in golang.TOOLS}
    for family in {tool.family for tool in golang.TOOLS}:
        sums = tmp_path / "go" / family / "go.sum"
        text = sums.read_text()
        sums.write_text(text + "example.org/more v1.0.0 h1:AAAA=\n")
        changed = {tool.family for tool in golang.TOOLS if golang.location(tool, "go1.26.8") != before[tool.name]}
        assert changed == {family}
        sums.write_text(text)


def test_while_go_compiles_the_progress_line_does_not_repeat_its_last_download():
    log = "go: downloading a v1\ngo: downloading b v2\n"
    assert golang.doing(log, quiet=0.5) == "go: downloading b v2"
    assert golang.doing(log, quiet=golang.HEARTBEAT) == "compiling"
    assert golang.doing("", quiet=0.5) == "compiling"


def test_bytes_that_move_between_module_file_and_checksums_give_another_key():
    assert golang.key("go1.26.8", TOOL, b"ab", b"c") != golang.key("go1.26.8", TOOL, b"a", b"bc")


@pytest.mark.parametrize("answer", ["go version go1.26.8 linux/amd64", "go version go1.27 linux/arm64"])
def test_a_go_that_is_new_enough_is_taken(answer):
    assert golang.check_go(answer) == answer.split()[2]


@pytest.mark.parametrize("answer", ["go version go1.19.8 linux/amd64", "something else"])
def test_a_go_that_is_too_old_or_unknown_is_refused_with_the_version_needed(answer):
    with pytest.raises(TestbedError, match=r"1\.26"):
        golang.check_go(answer)


def test_every_family_has_its_module_files_and_pins_the_version_of_the_table():
    pins = {
        "kube": f"k8s.io/kubernetes v{golang.KUBERNETES}",
        "etcd": f"go.etcd.io/etcd/server/v3 v{golang.ETCD}",
        "coredns": f"github.com/coredns/coredns v{golang.COREDNS}",
        "kwok": f"sigs.k8s.io/kwok v{golang.KWOK}",
        "helm4": f"helm.sh/helm/v4 v{golang.HELM4}",
        "helm3": f"helm.sh/helm/v3 v{golang.HELM3}",
        "prometheus": f"github.com/prometheus/prometheus v0.{golang.PROMETHEUS.replace('.', '', 1)}",
        "dashboardlinter": f"github.com/grafana/dashboard-linter v{golang.DASHBOARD_LINTER}",
        "alertmanager": f"github.com/prometheus/alertmanager v{golang.ALERTMANAGER}",
        "kubestatemetrics": f"k8s.io/kube-state-metrics/v2 v{golang.KUBE_STATE_METRICS}",
        "prometheusconfig": f"github.com/prometheus-operator/prometheus-operator v{golang.PROMETHEUS_OPERATOR}",
        "crane": f"github.com/google/go-containerregistry v{golang.CRANE}",
        "lws": f"sigs.k8s.io/lws v{golang.LEADER_WORKER_SET}",
        "deviceplugin": f"k8s.io/kubelet v0.{golang.KUBERNETES.partition('.')[2]}",
    }
    assert {tool.family for tool in golang.BY_NAME.values()} == set(pins)
    for family, pin in pins.items():
        folder = golang.PACKAGE / "go" / family
        assert pin in (folder / "go.mod").read_text()
        assert (folder / "go.sum").stat().st_size > 0


APART = {
    "github.com/prometheus/alertmanager": "later releases lack built pages; the others need its packages alone",
    "github.com/go-openapi/runtime/server-middleware": "Alertmanager links none of it",
    "github.com/hashicorp/go-metrics": "Alertmanager alone links it, and those below",
    "github.com/hashicorp/golang-lru": "",
    "github.com/miekg/dns": "",
    "golang.org/x/mod": "tools of Go, which no program links",
    "golang.org/x/tools": "",
}
"""Modules of which two programs of monitoring have different versions, and why that costs nothing."""


def test_what_the_programs_of_monitoring_share_has_one_version_and_is_compiled_once():
    versions: dict[str, set[str]] = {}
    for family in {tool.family for tool in golang.MONITORING}:
        text = (golang.PACKAGE / "go" / family / "go.mod").read_text()
        for module, version in re.findall(r"^(?:require )?\s+?([\w.-]+\.[\w./-]+) (v\S+)", text, re.MULTILINE):
            versions.setdefault(module, set()).add(version)
    assert len(versions) > 200
    assert {module for module, found in versions.items() if len(found) > 1} == APART.keys()


def test_no_cluster_needs_what_measures_the_others():
    assert not {tool.name for tool in golang.MONITORING} & {*golang.API_TOOLS, *golang.SIM_TOOLS, *golang.NODE_TOOLS}
    assert not {tool.name for tool in golang.MONITORING} & {tool.name for tool in golang.TOOLS}


def test_an_unbuilt_tool_is_an_error_that_says_how_to_build_it(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHPOD_CACHE", str(tmp_path))
    with pytest.raises(TestbedError, match="python3 -m testbed build"):
        golang.binary("kubectl")


def test_without_go_on_the_path_the_error_says_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TestbedError, match=r"Go is not installed.*install Go 1\.26"):
        golang.go_version()
