"""docs/install.md tells the operator's rights and the demo's variables as they are."""

import re
from pathlib import Path

from demo.given import VARIABLES
from testbed.images import IMAGES
from tests.unit.house.test_operations_page import granted

PAGE = Path("docs/install.md").read_text()


def rows(title: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    section = PAGE.partition(f"\n{title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_the_rights_on_the_page_are_the_charts() -> None:
    told = set()
    for resources, verbs, why in rows("## What the operator may do"):
        group = found[1] if (found := re.match(r"`(\S+)` ", resources)) else ""
        names = re.sub(r"`\S+` ", "", resources).split(", ")
        told |= {(group, name, verb) for name in names for verb in verbs.split(", ")}
        assert why
    assert told == {
        (group, name, verb)
        for rule in granted()
        for group in rule["apiGroups"]
        for name in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_variables_on_the_page_are_those_of_make() -> None:
    told = {name for row in rows("## See it run there first") for name in re.findall(r"`([A-Z_]+)=", row[0])}
    made = set(re.findall(r"call option,[a-z-]+,([A-Z_]+)", Path("Makefile").read_text()))
    assert told == made
    assert set(VARIABLES.values()) <= made


def test_the_images_on_the_page_are_those_that_are_built() -> None:
    for target in VARIABLES:
        assert f"PREFIX/{IMAGES[target].tag.partition('/')[2]}" in PAGE
