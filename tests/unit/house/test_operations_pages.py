"""The pages about operations give the operator's rights, the demo's variables and the images as they are."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from demo.current.image_source import VARIABLES
from graphpod_operator.render.pinned_rendering import ELSEWHERE
from testbed.images.build import IMAGES

INSTALL = Path("docs/operations/install.md").read_text()
SECURITY = Path("docs/operations/security.md").read_text()
FILES = sorted(Path("charts/graphpod/files").glob("rbac*.yaml"))


def granted() -> Iterator[dict[str, Any]]:
    """Every rule that the chart can grant; those to optional kinds stand by the value that grants them."""
    for file in FILES:
        found = yaml.safe_load(file.read_text())
        yield from chain.from_iterable(found.values()) if isinstance(found, dict) else found


def rows(page: str, title: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    section = page.partition(f"\n{title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_every_right_of_the_operator_has_its_reason_on_the_page_and_no_other_right_is_there() -> None:
    given = []
    for resources, verbs, why in rows(SECURITY, "## The operator's role"):
        group = found[1] if (found := re.match(r"`(\S+)` ", resources)) else ""
        names = re.sub(r"`\S+` ", "", resources).split(", ")
        given += [(group, name, verb) for name in names for verb in verbs.split(", ")]
        assert why
    assert len(FILES) == 3
    assert len(given) == len(set(given))
    assert set(given) == {
        (group, name, verb)
        for rule in granted()
        for group in rule["apiGroups"]
        for name in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_variables_on_the_page_are_those_of_make() -> None:
    named = {
        name for row in rows(INSTALL, "## The demo on your cluster") for name in re.findall(r"`([A-Z_]+)=", row[0])
    }
    made = set(re.findall(r"call option,[a-z-]+,([A-Z_]+)", Path("Makefile").read_text()))
    assert named == made
    assert set(VARIABLES.values()) <= made


def test_the_images_on_the_page_are_those_that_are_built() -> None:
    for target in VARIABLES:
        assert f"PREFIX/{IMAGES[target].tag.partition('/')[2]}" in INSTALL


def test_the_fields_that_make_no_revision_are_those_on_the_page() -> None:
    page = Path("docs/concepts/revisions.md").read_text()
    listed = page.partition("makes no new revision")[2].partition(". A field")[0]
    assert set(re.findall(r"`spec\.([\w.]+)`", listed)) == {".".join(field) for field in ELSEWHERE}
