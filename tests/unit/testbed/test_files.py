"""What the components are given: tokens, configuration, images, manifests."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from testbed import cli
from testbed.binaries import packages
from testbed.control.control_plane import ControlPlane, corefile
from testbed.control.pki import Identities, User, kubeconfig, read_token, token_lines, users
from testbed.errors import TestbedError
from testbed.host.network import Addresses
from testbed.nodes import addons
from testbed.nodes.node import Node, containerd_config
from testbed.nodes.node_images import listed
from testbed.nodes.pause import IMAGE, docker_archive

ADDRESSES = Addresses(5)
STATE = Path("/state/demo")
NODE = Node("demo", 1, STATE / "node1", ADDRESSES, Identities(STATE / "pki"), lambda name: Path("/bin") / name)
DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}
PLANE = ControlPlane(STATE, ADDRESSES, Identities(STATE / "pki"), lambda name: Path("/bin") / name)


def test_groups_of_a_token_are_quoted_and_users_without_groups_have_none():
    text = token_lines({User("admin", ("system:masters", "b")): "t1", User("operator"): "t2"})
    assert text == 't1,admin,admin,"system:masters,b"\nt2,operator,operator\n'
    assert read_token(text, "operator") == "t2"
    with pytest.raises(TestbedError, match="admin, operator"):
        read_token(text, "nobody")


def test_every_node_is_a_user_of_its_own_so_that_node_restriction_means_something():
    assert [u.name for u in users(2) if u.name.startswith("system:node:")] == ["system:node:node1", "system:node:node2"]


def test_a_kubeconfig_holds_no_path():
    config = json.loads(kubeconfig("c", "https://10.200.5.1:6443", b"CA", "user1", "secret"))
    assert config["clusters"][0]["cluster"]["certificate-authority-data"] == "Q0E="
    assert "/" not in json.dumps(config["users"])


def test_the_api_server_listens_on_the_bridge_only_and_has_the_admission_a_careful_cluster_has():
    flags = [str(f) for f in PLANE.apiserver()]
    assert "--bind-address=10.200.5.1" in flags
    assert "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement" in flags
    assert f"--audit-log-path={PLANE.audit_log}" in flags
    assert not any("0.0.0.0" in f for f in flags)


def test_dns_asks_nobody_outside():
    text = corefile(ADDRESSES, Path("/k"))
    assert "bind 10.200.5.1" in text
    assert "forward" not in text


def test_nodes_ask_the_dns_service_that_the_manifests_make():
    (service,) = (m for m in addons.manifests(ADDRESSES, [NODE], [])["items"] if m["kind"] == "Service")
    assert NODE._kubelet_config()["clusterDNS"] == [service["spec"]["clusterIP"]]


def test_each_volume_belongs_to_the_node_that_holds_its_folder_and_to_the_default_class():
    items = addons.manifests(ADDRESSES, [NODE], [])["items"]
    (default,) = (m["metadata"]["name"] for m in items if m["metadata"].get("annotations") == DEFAULT)
    volumes = [m for m in items if m["kind"] == "PersistentVolume"]
    assert {v["spec"]["storageClassName"] for v in volumes} == {default}
    assert {v["spec"]["local"]["path"] for v in volumes} == {str(p) for p in NODE.volumes}
    assert "node1" in json.dumps(volumes[0]["spec"]["nodeAffinity"])


def test_a_shared_volume_is_for_many_writers_and_on_every_node():
    items = addons.manifests(ADDRESSES, [], addons.shared_volumes(STATE))["items"]
    volume = next(m for m in items if m["kind"] == "PersistentVolume")["spec"]
    assert volume["storageClassName"] == "testbed-shared"
    assert "ReadWriteMany" in volume["accessModes"]
    assert '"Exists"' in json.dumps(volume["nodeAffinity"])


def test_containerd_keeps_everything_of_its_own_in_the_node_folder():
    text = containerd_config(NODE.folder)
    paths = [line.split('"')[1] for line in text.splitlines() if line.count('"') == 2 and '"/' in line]
    assert [p for p in paths if not p.startswith(str(NODE.folder))] == ["/usr/lib/cni"]


def test_the_pause_image_is_the_same_bytes_every_time_and_names_itself():
    data = docker_archive(b"program", "amd64", IMAGE)
    assert data == docker_archive(b"program", "amd64", IMAGE)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        manifest = json.load(tar.extractfile("manifest.json"))
    assert manifest[0]["RepoTags"] == [IMAGE]


def test_a_nodes_images_are_read_from_containerds_table():
    table = (
        "REF                TYPE         DIGEST    SIZE      PLATFORMS   LABELS\n"
        "graphpod.dev/a:1   application  sha256:12 1.2 MiB   linux/amd64 io.cri-containerd.image=managed\n"
    )
    assert listed(table) == {"graphpod.dev/a:1": "sha256:12"}


def test_a_dns_answer_with_an_error_or_without_a_record_is_no_answer():
    good = bytes.fromhex("000181800001000100000000")
    assert addons.answered(good)
    assert not addons.answered(good[:3] + b"\x83" + good[4:])  # NXDOMAIN
    assert not addons.answered(good[:6] + b"\0\0" + good[8:])
    assert addons.question("a.bc")[12:] == b"\x01a\x02bc\x00\x00\x01\x00\x01"


def test_packages_that_were_removed_but_not_purged_count_as_absent():
    answer = "".join(f"{p} installed\n" for p in packages.PACKAGES if p != "runc") + "runc config-files\n"
    assert packages.absent(answer) == ["runc"]
    assert packages.absent("") == list(packages.PACKAGES)


def test_options_after_kubectl_are_kubectl_s():
    assert cli.split(["kubectl", "-n", "x", "get", "pods", "--name", "y"]) == (
        ["kubectl"],
        ["-n", "x", "get", "pods", "--name", "y"],
    )
    assert cli.split(["kubectl", "--name", "t", "get", "-h"]) == (["kubectl", "--name", "t"], ["get", "-h"])
    assert cli.split(["kubectl", "--name=t", "get"]) == (["kubectl", "--name=t"], ["get"])
    assert cli.split(["kubectl", "--name", "t", "--", "get"]) == (["kubectl", "--name", "t"], ["get"])
    assert cli.split(["status", "--name", "t"]) == (["status", "--name", "t"], [])
