"""What an image is said to hold: from a root file system made here."""

import json
import re
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from testbed import sbom

STATUS = """\
Package: libfoo1
Status: install ok installed
Source: foo (1.2)
Version: 1.2-3+deb12u1
Description: a library
 with a long story

Package: gone
Status: deinstall ok config-files
Version: 1

Package: old
Status: install ok installed
Version: 2
"""
DEP5 = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\nLicense: GPL-2+\n"
REPORT = {
    "install": [
        {
            "metadata": {"name": "Some.Package"},
            "download_info": {"archive_info": {"hash": f"sha256={'ab' * 32}"}},
        }
    ]
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "var/lib/dpkg/status": STATUS,
        "usr/share/doc/libfoo1/copyright": DEP5,
        "usr/share/doc/old/copyright": "See /usr/share/common-licenses/LGPL-2.1.",
        f"{sbom.SITE}/some_package-1.0.dist-info/METADATA": "Name: Some.Package\nVersion: 1.0\nLicense: MIT License\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def made(root: Path) -> dict:
    return sbom.sbom(root, "operator", "0.1.0", ["graphpod_policy"], REPORT, 1795219200)


def licences(document: dict) -> dict[str, list]:
    return {c["name"]: [found["license"] for found in c["licenses"]] for c in document["components"]}


def test_it_names_what_is_installed_and_nothing_else(root: Path) -> None:
    assert sorted(c["purl"] for c in made(root)["components"]) == [
        "pkg:deb/debian/libfoo1@1.2-3%2Bdeb12u1",
        "pkg:deb/debian/old@2",
        "pkg:generic/graphpod_policy@0.1.0",
        "pkg:pypi/some-package@1.0",
    ]


def test_licences_come_from_metadata_and_from_both_kinds_of_copyright_files(root: Path) -> None:
    assert licences(made(root)) == {
        "graphpod_policy": [{"id": "Apache-2.0"}],
        "libfoo1": [{"id": "GPL-2.0-or-later"}],
        "old": [{"id": "LGPL-2.1-only"}],
        "some-package": [{"id": "MIT"}],
    }


def test_a_wheel_bears_the_hash_that_pip_reported(root: Path) -> None:
    (wheel,) = (c for c in made(root)["components"] if c["name"] == "some-package")
    assert wheel["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]


def test_an_unknown_licence_is_an_error_with_every_name(root: Path) -> None:
    (root / "usr/share/doc/old/copyright").write_text("Free as in beer.")
    (root / sbom.SITE / "some_package-1.0.dist-info/METADATA").write_text("Name: Some.Package\nVersion: 1.0\n")
    with pytest.raises(sbom.Unknown, match="some-package, old: add it to UNTOLD"):
        made(root)


def test_the_same_root_is_the_same_document(root: Path) -> None:
    assert made(root) == made(root)
    serial = made(root)["serialNumber"]
    (root / sbom.SITE / "some_package-1.0.dist-info/METADATA").write_text(
        "Name: Some.Package\nVersion: 1.1\nLicense: MIT\n"
    )
    assert made(root)["serialNumber"] != serial


def test_it_fits_the_schema(root: Path) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(made(root))) is None


def test_every_identifier_of_the_table_is_one_that_spdx_knows(root: Path) -> None:
    document = made(root)
    document["components"][0]["licenses"] = [{"license": {"id": name}} for name in sorted(set(sbom.SPDX.values()))]
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(document)) is None


def test_it_carries_flashinfers_kernels_with_their_hashes(root: Path) -> None:
    kernel = root / sbom.SITE / "flashinfer/data/aot/norm/norm.so"
    kernel.parent.mkdir(parents=True)
    kernel.write_bytes(b"code")
    (found,) = (c for c in made(root)["components"] if c["type"] == "file")
    assert found["bom-ref"] == "file:norm/norm.so"
    assert re.fullmatch("[0-9a-f]{64}", found["hashes"][0]["content"])


@pytest.mark.parametrize(
    ("expression", "text", "classifiers", "licence"),
    [
        ("MIT OR Apache-2.0", "ignored", [], "MIT OR Apache-2.0"),
        (None, "Apache License, Version 2.0", [], "Apache-2.0"),
        (None, "A text\nof many lines", ["License :: OSI Approved :: MIT License"], "MIT"),
        (None, "UNKNOWN", ["Topic :: Games"], None),
        (None, None, [], None),
    ],
)
def test_a_licence_is_read_where_the_metadata_tells_it(
    expression: str | None, text: str | None, classifiers: list[str], licence: str | None
) -> None:
    assert sbom.python_licence(expression, text, classifiers) == licence
