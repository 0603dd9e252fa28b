"""What an image holds, as CycloneDX 1.6 JSON: `python3 sbom.py NAME VERSION --own FOLDER … > sbom.cdx.json`.

Runs inside the image while it is built (see Dockerfile), hence alone and with the standard library: Debian packages
from dpkg's record, Python packages from their metadata, the hashes of their wheels from pip's report. A licence that
is unknown is an error, with the table to add it to. The same root gives the same bytes.
"""

import argparse
import hashlib
import json
import os
import re
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

SITE = Path("usr/local/lib/python3.11/dist-packages")
NAMESPACE = uuid.UUID("6f1b7a52-93c4-5d0e-8a3e-5f2d6b0c4e11")  # any constant: serial numbers are made from contents
OUR_LICENCE = "Apache-2.0"

# SPDX identifiers of what packages call their licences. What is not here keeps its own name.
SPDX = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache-2": "Apache-2.0",
    "apache-2.0": "Apache-2.0",
    "artistic": "Artistic-1.0-Perl",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd-2-clause": "BSD-2-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "bsd-4-clause": "BSD-4-Clause",
    "bsd-4-clause-uc": "BSD-4-Clause-UC",
    "bsl-1.0": "BSL-1.0",
    "cc0": "CC0-1.0",
    "cc0-1.0": "CC0-1.0",
    "expat": "MIT",
    "gfdl-1.3+": "GFDL-1.3-or-later",
    "gfdl-1.3": "GFDL-1.3-only",
    "gpl-1": "GPL-1.0-only",
    "gpl-1+": "GPL-1.0-or-later",
    "gpl-2": "GPL-2.0-only",
    "gpl-2+": "GPL-2.0-or-later",
    "gpl-3": "GPL-3.0-only",
    "gpl-3+": "GPL-3.0-or-later",
    "isc": "ISC",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "lgpl-2": "LGPL-2.0-only",
    "lgpl-2+": "LGPL-2.0-or-later",
    "lgpl-2.0+": "LGPL-2.0-or-later",
    "lgpl-2.1": "LGPL-2.1-only",
    "lgpl-2.1+": "LGPL-2.1-or-later",
    "lgpl-3": "LGPL-3.0-only",
    "lgpl-3+": "LGPL-3.0-or-later",
    "mit": "MIT",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "mpl-1.1": "MPL-1.1",
    "mpl-2.0": "MPL-2.0",
    "openssl": "OpenSSL",
    "psf-2": "PSF-2.0",
    "psfl": "PSF-2.0",
    "python software foundation license": "PSF-2.0",
    "zlib": "Zlib",
}

# What the licence file says, where neither metadata nor a pattern decides: by Python distribution or Debian source.
UNTOLD = {
    "cuda-toolkit": "LicenseRef-NVIDIA-Proprietary",  # has no files: it names NVIDIA's libraries, which are that
    "libxcrypt": "LGPL-2.1-or-later",
    "python3-defaults": "PSF-2.0",
}


class Unknown(Exception):
    """Licences that are unknown."""


def sbom(
    root: Path, name: str, version: str, own: Sequence[str], report: Mapping[str, Any], epoch: int
) -> dict[str, Any]:
    """The document about the file system under `root`. Raises `Unknown`, naming every package without a licence."""
    python, unknown_python = python_packages(root / SITE, report)
    debian, unknown_debian = debian_packages(root)
    if unknown := [*unknown_python, *unknown_debian]:
        raise Unknown(f"no licence is known of {', '.join(unknown)}: add it to UNTOLD or SPDX in testbed/sbom.py")
    ours = [_component("pkg:generic", folder, version, _licences([OUR_LICENCE])) for folder in own]
    components = sorted([*ours, *python, *debian, *kernels(root)], key=lambda c: str(c["bom-ref"]))
    image = _component("pkg:oci", name, version, _licences([OUR_LICENCE])) | {"type": "container"}
    body = {
        "metadata": {"timestamp": datetime.fromtimestamp(epoch, UTC).isoformat(), "component": image},
        "components": components,
        "dependencies": [{"ref": image["bom-ref"], "dependsOn": [c["bom-ref"] for c in components]}],
    }
    serial = uuid.uuid5(NAMESPACE, json.dumps(body, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return {**head, **body}


# --- Python


def python_packages(site: Path, report: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Components of the distributions in `site`, and the names of those whose licence is unknown."""
    hashes = {
        canonical(entry["metadata"]["name"]): entry["download_info"]["archive_info"]["hash"].removeprefix("sha256=")
        for entry in report.get("install", ())
    }
    found, unknown = [], []
    for file in sorted(site.glob("*.dist-info/METADATA")):
        fields = HeaderParser().parsestr(file.read_text(errors="replace"))
        name = canonical(fields["Name"])
        licence = python_licence(fields["License-Expression"], fields["License"], fields.get_all("Classifier", []))
        licence = licence or UNTOLD.get(name)
        if licence is None:
            unknown.append(name)
            continue
        component = _component("pkg:pypi", name, fields["Version"], _licences([licence]))
        if name in hashes:
            component["hashes"] = [{"alg": "SHA-256", "content": hashes[name]}]
        found.append(component)
    return found, unknown


def python_licence(expression: str | None, text: str | None, classifiers: Iterable[str]) -> str | None:
    """A licence from a distribution's metadata: the SPDX expression, a licence's name, else the classifiers."""
    if expression:
        return expression
    short = (text or "").strip()
    if short and len(short) < 100 and "\n" not in short and short.upper() != "UNKNOWN":
        return SPDX.get(short.lower(), short)
    named = [c.rpartition(" :: ")[2] for c in classifiers if c.startswith("License :: ")]
    return " AND ".join(SPDX.get(t.lower(), t) for t in named) or None


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# --- Debian


def dpkg_status(text: str) -> list[dict[str, str]]:
    """Fields of every installed package; the first line of those that have several."""
    paragraphs = [
        dict(line.partition(":")[::2] for line in p.splitlines() if not line.startswith(" "))
        for p in text.strip().split("\n\n")
    ]
    fields = [{key: value.strip() for key, value in p.items()} for p in paragraphs]
    return [f for f in fields if f.get("Status", "").endswith(" installed")]


def debian_packages(root: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Components of the installed Debian packages, and the names of those whose licence is unknown."""
    packages = dpkg_status((root / "var/lib/dpkg/status").read_text())
    texts: dict[str, str] = {}  # by source: packages of one source share what the first one of them says
    for package in packages:
        file = root / "usr/share/doc" / package["Package"] / "copyright"
        if file.exists():
            texts.setdefault(_source(package), file.read_text(errors="replace"))
    found, unknown = [], []
    for package in packages:
        untold = [UNTOLD[_source(package)]] if _source(package) in UNTOLD else []
        names = debian_licences(texts.get(_source(package), "")) or untold
        if not names:
            unknown.append(package["Package"])
            continue
        found.append(_component("pkg:deb/debian", package["Package"], package["Version"], _licences(names)))
    return found, unknown


def debian_licences(copyright: str) -> list[str]:
    """Licences that a package's copyright file names, in whichever of Debian's two ways."""
    if copyright.startswith("Format:"):
        named = re.findall(r"^License:[ \t]*(\S.*?)[ \t]*$", copyright, re.MULTILINE)
        return sorted({SPDX.get(n.lower(), n) for n in named})
    named = re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])", copyright)
    return sorted({SPDX.get(n.lower(), n) for n in named})


def _source(package: Mapping[str, str]) -> str:
    return package.get("Source", package["Package"]).split(" ")[0]


# --- others


def kernels(root: Path) -> list[dict[str, Any]]:
    """flashinfer's kernels built ahead of time, where the image carries them."""
    place = root / SITE / "flashinfer/data/aot"
    return [
        {
            "type": "file",
            "bom-ref": f"file:{file.relative_to(place).as_posix()}",
            "name": file.name,
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(file.read_bytes()).hexdigest()}],
            "licenses": _licences(["Apache-2.0"]),
        }
        for file in sorted(place.rglob("*.so"))
    ]


def _component(kind: str, name: str, version: str, licences: list[dict[str, Any]]) -> dict[str, Any]:
    purl = f"{kind}/{name}@{version.replace('+', '%2B')}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "licenses": licences,
        "purl": purl,
    }


def _licences(names: Sequence[str]) -> list[dict[str, Any]]:
    known = set(SPDX.values())
    if len(names) == 1 and re.fullmatch(r"[^,]* (AND|OR|WITH) [^,]*", names[0]):
        return [{"expression": names[0]}]
    return [{"license": {"id" if name in known else "name": name}} for name in names]


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="What the image that this runs in holds, as CycloneDX JSON.")
    parser.add_argument("name")
    parser.add_argument("version")
    parser.add_argument("--own", nargs="*", default=[], metavar="FOLDER", help="packages of ours, of that version")
    parser.add_argument("--report", type=Path, help="what `pip install --report` wrote")
    parser.add_argument("--root", type=Path, default=Path("/"))
    args = parser.parse_args(argv)
    report = json.loads(args.report.read_text()) if args.report else {}
    try:
        found = sbom(args.root, args.name, args.version, args.own, report, int(os.environ["SOURCE_DATE_EPOCH"]))
    except Unknown as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    json.dump(found, sys.stdout, indent=1, sort_keys=True)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
