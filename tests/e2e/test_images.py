"""The built images themselves: what is in them, what they say is in them, and that they come out the same again."""

import json
import re
from email.parser import HeaderParser
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from testbed.images import build as images
from testbed.images import packed
from testbed.sbom import SITE, canonical, dpkg_status

pytestmark = pytest.mark.e2e

TARGETS = ("operator", "runtime")
COMPILERS = re.compile(r"usr/bin/(.*-)?(gcc|g\+\+|cc|c\+\+|cpp|clang|as|ld|make|pip|pip3)(-[0-9.]+)?")


@cache
def built(target: str) -> packed.Packed:
    return packed.read(images.build(target))[0]


@cache
def files(target: str) -> tuple[str, ...]:
    """Every path of the image's layers."""
    found: set[str] = set()
    for layer in built(target).layers:
        with layer.tar() as tar:
            found.update(name.removeprefix("./") for name in tar.getnames())
    return tuple(sorted(found))


def sbom(target: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(built(target).file(images.SBOM))
    return document


def named(target: str, kind: str) -> dict[str, str]:
    return {c["name"]: c["version"] for c in sbom(target)["components"] if c.get("purl", "").startswith(f"pkg:{kind}/")}


def distributions(target: str) -> dict[str, str]:
    """Version by name of what pip's records in the layers tell."""
    found = {}
    for layer in built(target).layers:
        with layer.tar() as tar:
            for member in tar:
                if re.fullmatch(rf"(\./)?{SITE}/[^/]+\.dist-info/METADATA", member.name):
                    fields = HeaderParser().parsestr(tar.extractfile(member).read().decode())
                    found[canonical(fields["Name"])] = fields["Version"]
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_the_list_of_contents_fits_the_schema_and_lies_beside_the_image_too(target: str) -> None:
    text = built(target).file(images.SBOM)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text.decode()) is None
    assert (images.build(target) / "sbom.cdx.json").read_bytes() == text


@pytest.mark.parametrize("target", TARGETS)
def test_the_list_of_contents_names_exactly_the_debian_packages(target: str) -> None:
    there = dpkg_status(built(target).file("/var/lib/dpkg/status").decode())
    assert named(target, "deb") == {fields["Package"]: fields["Version"] for fields in there}


@pytest.mark.parametrize("target", TARGETS)
def test_the_list_of_contents_names_exactly_the_python_packages_with_hashes_of_the_lock(target: str) -> None:
    there = distributions(target)
    assert named(target, "pypi") == there
    (lock,) = (name for name in images.described(target).sources if name.startswith("locks/"))
    locked = set(re.findall("sha256:([0-9a-f]{64})", Path(lock).read_text()))
    hashes = {c["name"]: c.get("hashes") for c in sbom(target)["components"] if c["name"] in there}
    assert {name for name, found in hashes.items() if not found or found[0]["content"] not in locked} == set()


@pytest.mark.parametrize("target", TARGETS)
def test_every_licence_is_known(target: str) -> None:
    assert [c["name"] for c in sbom(target)["components"] if not c["licenses"]] == []


@pytest.mark.parametrize("target", TARGETS)
def test_our_own_packages_are_listed_and_there(target: str) -> None:
    folders = {name.split("/")[1] for name in files(target) if name.startswith("graphpod/graphpod_")}
    assert named(target, "generic").keys() == folders


@pytest.mark.parametrize("target", TARGETS)
def test_no_compiler_and_no_installer_is_there(target: str) -> None:
    assert [name for name in files(target) if COMPILERS.fullmatch(name)] == []
    assert named(target, "pypi").keys().isdisjoint({"pip", "uv"})


@pytest.mark.parametrize("target", TARGETS)
def test_no_layer_tells_when_it_was_built(target: str) -> None:
    created = {built(target).settings()["created"], *(h["created"] for h in built(target).settings()["history"])}
    assert created == {"2026-11-21T00:00:00Z"}
    logs = [name for name in files(target) if re.fullmatch(r"var/log/.+\.log|var/cache/ldconfig/aux-cache", name)]
    assert logs == []


@pytest.mark.parametrize("target", TARGETS)
def test_the_size_is_within_its_goal(target: str) -> None:
    goal = images.described(target).goal
    assert goal is None or built(target).size <= goal


def test_labels_say_what_the_image_is() -> None:
    there = built("operator").settings()["config"]["Labels"]
    assert there["org.opencontainers.image.title"] == "graphpod operator"
    assert re.fullmatch("sha256:[0-9a-f]{64}", there["org.opencontainers.image.base.digest"])
    assert there["dev.graphpod.sbom"] == images.SBOM


def test_built_again_without_any_layer_of_before_an_image_is_the_same() -> None:
    """The small one; `make images-check` does it for the others, from an empty store."""
    assert built("stubs").digest == images.build_anew("stubs").digest


def test_one_file_of_an_image_is_the_same_every_time(tmp_path: Path) -> None:
    folder = images.build("stubs")
    for name in ("one.tar", "two.tar"):
        images.save(folder, tmp_path / name)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    assert packed.read(tmp_path / "one.tar")[0].digest == packed.read(folder)[0].digest
