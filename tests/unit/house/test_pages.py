"""The documentation: every link leads somewhere, every page can be found, and the prose is short and plain."""

import re
import subprocess
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import yaml

from graphpod_operator import cli
from graphpod_policy.enums import FallbackReason
from graphpod_sources.problem import Reason
from tests.unit.house.pages import DOCS, PAGES, ROOT, Block, Page, slug

GENERATED = DOCS / "reference"
PROSE = [page for page in PAGES if GENERATED not in page.path.parents]
"""Pages that people write; those of the reference are made from tables, which have rules of their own."""
LONGEST_MEAN = 18
"""Words of a sentence, on average over a page."""


def files(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def nav(entry: Any) -> list[str]:
    """The pages of mkdocs' navigation."""
    if isinstance(entry, str):
        return [entry]
    return [page for below in (entry.values() if isinstance(entry, dict) else entry) for page in nav(below)]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_relative_link_and_anchor_resolves(page: Page) -> None:
    broken = []
    for link in page.links:
        name, _, anchor = link.partition("#")
        target = (page.path.parent / name).resolve() if name else page.path
        if not target.exists() or (anchor and anchor not in Page(target).anchors):
            broken.append(link)
    assert broken == []


def test_every_page_is_in_the_navigation_once_and_nothing_else_is() -> None:
    listed = nav(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(listed) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def test_every_page_that_another_file_names_exists() -> None:
    named = re.compile(r"(?<![\w/.-])docs/[\w/-]+\.md")
    sources = files("*.py", "*.yaml", "*.lua", "*.txt", "*.tpl", "*.toml", "Makefile", "Dockerfile")
    missing = {
        str(source.relative_to(ROOT)): absent
        for source in sources
        if (absent := [name for name in named.findall(source.read_text()) if not (ROOT / name).exists()])
    }
    assert missing == {}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_sentences_are_short(page: Page) -> None:
    lengths = list(page.sentences())
    assert not lengths or mean(lengths) <= LONGEST_MEAN


def test_the_readme_fits_on_two_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def manifests(block: Block) -> list[dict[str, Any]]:
    found = yaml.safe_load_all(block.text) if block.language == "yaml" else ()
    return [one for one in found if isinstance(one, dict) and one.get("kind") == "InferenceService"]


@pytest.mark.parametrize("page", [page for page in PROSE if any(map(manifests, page.blocks))], ids=str)
def test_every_service_on_a_page_is_one_that_can_start(
    page: Page, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for block in page.blocks:
        for manifest in manifests(block):
            file = tmp_path / "service.yaml"
            file.write_text(yaml.safe_dump(manifest))
            code = cli.main(["explain", "-f", str(file)])
            assert code in (0, 3), capsys.readouterr().out


def test_every_field_that_a_page_names_is_one_of_the_api() -> None:
    fields = set(re.findall(r"^\| `([^`]+)`", (GENERATED / "api.md").read_text(), re.MULTILINE))
    there = {field.replace("[]", "") for field in fields} | {"spec.resources.limits.memory"}
    named = re.compile(r"`((?:spec|status)\.[a-z][\w.]*\w)(?:: [^`]*)?`", re.ASCII)
    missing = {str(page): absent for page in PROSE if (absent := set(named.findall(page.words)) - there)}
    assert missing == {}


def test_every_target_of_make_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in PROSE for name in re.findall(r"(?:^|`)make ([a-z][a-z-]*)", page.text, re.MULTILINE)}
    assert named - targets == set()
    assert len(named) > 10


def test_every_value_of_the_chart_that_a_command_sets_exists() -> None:
    values = yaml.safe_load((ROOT / "charts/graphpod/values.yaml").read_text())
    named = {name for page in PROSE for name in re.findall(r"--set(?:-json|-string)?[ =]'?([\w.]+)=", page.text)}
    assert len(named) > 5
    for name in named - {"image.regstry"}:  # shows what a misspelt value gives
        found: Any = values
        for part in name.split("."):
            assert part in found, name
            found = found[part]


def test_every_metric_that_a_page_names_is_exported() -> None:
    metrics = set(re.findall(r"^\| `(\w+)`", (GENERATED / "metrics.md").read_text(), re.MULTILINE))
    there = {f"{name}{suffix}" for name in metrics for suffix in ("", "_bucket", "_sum", "_count")}
    named = re.compile(rf"\b(?:{'|'.join(sorted({name.split('_')[0] for name in metrics}))})_[a-z]\w*[a-z]\b")
    packages = {"graphpod_operator", "graphpod_policy", "graphpod_runtime", "graphpod_sources"}
    for page in PROSE:
        assert set(named.findall(page.text)) - there - packages == set(), str(page)


def test_every_reason_that_a_table_explains_exists() -> None:
    there = "\n".join(path.read_text() for path in GENERATED.glob("*.md")) + " ".join((*FallbackReason, *Reason))
    row = re.compile(r"^\| ((?:`[A-Z]\w*[a-z][A-Z]\w*`(?:, )?)+)", re.MULTILINE)
    of_users = [page for page in PROSE if page.path.parent.name != "contributing"]
    named = {name for page in of_users for names in row.findall(page.text) for name in re.findall(r"`(\w+)`", names)}
    assert len(named) > 40
    assert {name for name in named if name not in there} == {"CertManager"}, "that is a value of the chart"


@pytest.mark.parametrize(
    ("title", "anchor"),
    [("What `make` needs", "what-make-needs"), ("Before you start: GPUs", "before-you-start-gpus"), ("A, B", "a-b")],
)
def test_an_anchor_is_the_headings_words(title: str, anchor: str) -> None:
    assert slug(title) == anchor


def test_every_example_is_explained_under_what_it_is() -> None:
    page = next(page for page in PAGES if str(page) == "examples/README.md")
    today, planned = page.text.split("## Planned")
    links = re.compile(r"\(([\w/-]+\.yaml)\)")
    there = {str(path.relative_to(ROOT / "examples")) for path in (ROOT / "examples").rglob("*.yaml")}
    assert set(links.findall(today)) == {name for name in there if not name.startswith("planned/")}
    assert set(links.findall(planned)) == {name for name in there if name.startswith("planned/")}
