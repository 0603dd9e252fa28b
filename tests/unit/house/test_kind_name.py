"""Commands name our kind with its group: KServe and OME have an InferenceService too, and kubectl takes any of them."""

import re
from pathlib import Path

import pytest

from graphpod_operator.api.names import GROUP, PLURAL, SHORT_NAME

PLAIN = re.compile(
    rf"(?:kubectl|oc)\b[^\n|]*[\s/\"'](?<!{re.escape(GROUP)}/)({PLURAL[:-1]}s?)(?![\w-]|\.{re.escape(GROUP)})",
    re.IGNORECASE,
)
"""A command that leaves the group open; the label graphpod.dev/inferenceservice is no kind."""
READ = ("*.md", "docs/**/*.md", "examples/**/*", "charts/**/*", "demo/**/*.py", "operator/**/*.py")
FILES = sorted({path for pattern in READ for path in Path().glob(pattern) if path.is_file()})
ABOUT_NEIGHBOURS = Path("docs/how-to/neighbours.md")


def commands(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if PLAIN.search(line)]


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("kubectl get inferenceservices -A", True),
        ("kubectl delete inferenceservices --all", True),
        ("kubectl wait inferenceservice/demo", True),
        ('cluster.kubectl("get", "inferenceservice", name)', True),
        ("kubectl get inferenceservices.graphpod.dev", False),
        ("kubectl get gisvc", False),
        ("kubectl get pods -l graphpod.dev/inferenceservice=demo", False),
    ],
)
def test_a_command_without_the_group_is_recognized(line: str, plain: bool) -> None:
    assert bool(PLAIN.search(line)) is plain


def test_no_command_leaves_the_group_open() -> None:
    assert Path("docs/operations/install.md") in FILES
    found = {str(path): told for path in FILES if path != ABOUT_NEIGHBOURS and (told := commands(path))}
    assert found == {}


def test_the_page_about_neighbours_warns_of_the_plain_name_and_shows_no_command_with_it() -> None:
    (told,) = commands(ABOUT_NEIGHBOURS)
    assert "kubectl decides which" in told


def test_the_short_name_is_not_that_of_kserve_and_ome() -> None:
    assert SHORT_NAME == "gisvc"
