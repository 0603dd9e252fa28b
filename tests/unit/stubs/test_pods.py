"""The stubs as objects: what may run as a pod needs nothing but Python, and asks for no privilege."""

import ast
import sys
from pathlib import Path

import pytest

import stubs
from stubs import manifests
from stubs.certificate import Certificate

FOLDER = Path(stubs.__file__).parent
PAIR = Certificate(b"certificate", b"key")
WEB = [manifests.hub("n", "token"), manifests.s3("n", "id:secret"), manifests.external_metrics("n", PAIR)]


def file(module: str) -> Path:
    return FOLDER.parent / Path(*module.split(".")).with_suffix(".py")


def imported(module: str, seen: set[str]) -> set[str]:
    """Top-level names of everything a module of `stubs` imports, through other modules of `stubs` as well."""
    if module in seen:
        return set()
    seen.add(module)
    found: set[str] = set()
    for node in ast.walk(ast.parse(file(module).read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "stubs":
            parts = [f"{node.module}.{name.name}" for name in node.names]
            ours = [node.module] if file(node.module).exists() else parts
            found |= {name for one in ours for name in imported(one, seen)}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("module", ["hub", "s3", "external_metrics"])
def test_a_stub_that_runs_as_a_pod_needs_the_standard_library_only(module: str) -> None:
    assert imported(f"stubs.{module}", set()) <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("objects", WEB, ids=["hub", "s3", "external-metrics"])
def test_a_pod_asks_for_no_privilege_and_no_token(objects: list[manifests.Manifest]) -> None:
    [pod] = [o["spec"]["template"]["spec"] for o in objects if o["kind"] == "Deployment"]
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["automountServiceAccountToken"] is False
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    assert file(container["args"][0]).exists()


@pytest.mark.parametrize("objects", WEB, ids=["hub", "s3", "external-metrics"])
def test_a_service_leads_to_its_pods(objects: list[manifests.Manifest]) -> None:
    [workload] = [o for o in objects if o["kind"] == "Deployment"]
    [service] = [o for o in objects if o["kind"] == "Service"]
    assert service["spec"]["selector"] == workload["spec"]["template"]["metadata"]["labels"]
    names = {port["name"] for port in workload["spec"]["template"]["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} == names


def test_the_device_plugin_names_its_devices_after_its_node() -> None:
    [daemon] = manifests.device_plugin("n", 3)
    [container] = daemon["spec"]["template"]["spec"]["containers"]
    assert {"-count=3", "-prefix=$(NODE_NAME)-gpu"} <= set(container["args"])
    assert "NODE_NAME" in {variable["name"] for variable in container["env"]}
