"""What pages show of the command lines is what these print, and their PromQL asks for series that exist."""

import contextlib
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from graphpod_operator import cli
from graphpod_operator.conditions.reasons import Reason
from graphpod_policy.metrics import BY_NAME
from graphpod_runtime import cli as engine_cli
from tests.unit.house.pages import PAGES, ROOT, Page

COMMAND = re.compile(r"(?:^|[|(`$] ?)(?:\.venv/bin/)?(graphpod|graphpod-engine) ([a-z][^|`\n]*)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
ELLIPSIS = "…"
OUTPUT = re.compile(r"\$ \.venv/bin/graphpod (explain [^\n]*)\n(.+)", re.DOTALL)
"""A block that shows a command and what it printed."""
WRITTEN = {"service.yaml": 40960, "long.yaml": 65536}
"""Files that pages describe: examples/qwen3-8b.yaml with this spec.engine.maxModelLen."""
UNDESCRIBED = ("OLD.yaml", "NEW.yaml")
"""Files that stand for any service."""

SERIES = re.compile(
    r"\b(graphpod_\w+|workqueue_\w+|controller_runtime_\w+|leader_election_\w+|rest_client_\w+)(\{[^}]*\})?"
)
GROUPED = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right) ?\(([^)]*)\)")
OF_SCRAPING = {"inferenceservice", "namespace", "pod", "le"}
"""Labels that a series gets by being scraped, and that of a histogram's buckets."""


def parses(arguments: list[str], main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> str:
    """The help of the command that these arguments begin with."""
    with pytest.raises(SystemExit):
        main([*arguments, "--help"])
    return capsys.readouterr().out


def shown(page: Page) -> Iterator[tuple[str, list[str]]]:
    """Each command line in the page's blocks: its program and its words."""
    for block in page.blocks:
        for program, rest in COMMAND.findall(block.text.replace("\\\n", " ")):
            with contextlib.suppress(ValueError):  # an apostrophe in a comment
                yield program, shlex.split(rest, comments=True)


@pytest.mark.parametrize("page", [page for page in PAGES if any(shown(page))], ids=str)
def test_every_option_that_a_page_uses_exists(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    for program, words in shown(page):
        main = cli.main if program == "graphpod" else engine_cli.main
        depth = 2 if words[0] in ("operator", "bench") else 1
        known = set(OPTION.findall(parses(words[:depth], main, capsys))) | {"-f", "-n", "-o"}
        used = {word.partition("=")[0] for word in words if word.startswith("-") and word != "-"}
        assert used - known == set(), f"{program} {' '.join(words)}"


@pytest.fixture
def shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that pages name."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    for name, length in WRITTEN.items():
        service = yaml.safe_load((ROOT / "examples/qwen3-8b.yaml").read_text())
        service["spec"]["engine"] = {"maxModelLen": length}
        (tmp_path / name).write_text(yaml.safe_dump(service))
    monkeypatch.chdir(tmp_path)
    return tmp_path


OUTPUTS = [
    (page, *found.groups())
    for page in PAGES
    for block in page.blocks
    if (found := OUTPUT.match(block.text)) is not None and not any(name in found[1] for name in UNDESCRIBED)
]


@pytest.mark.parametrize(("page", "command", "output"), OUTPUTS, ids=lambda value: str(value)[:60])
@pytest.mark.usefixtures("shapes")
def test_what_a_page_shows_of_explain_is_what_it_prints(
    page: Page, command: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(shlex.split(command)) in (0, 3, 4)
    printed = capsys.readouterr().out.splitlines()
    at = 0
    for line in output.rstrip().splitlines():
        if line.strip() == ELLIPSIS:
            continue
        assert line in printed[at:], f"{page}: {line!r}"
        at += printed[at:].index(line) + 1


def test_pages_show_outputs() -> None:
    assert len(OUTPUTS) >= 5


def queries(page: Page) -> Iterator[str]:
    """PromQL on a page: blocks and code in tables that have a function, a selector or a comparison."""
    blocks = [block.text for block in page.blocks if not block.language and block.text[0] not in "{$"]
    texts = blocks + re.findall(r"`([^`\n]+)`", page.words)
    yield from (text for text in texts if SERIES.search(text) and re.search(r"[({<>]", text))


def metric(name: str) -> str:
    """The table's name of a series."""
    return name if name in BY_NAME else re.sub(r"_(bucket|sum|count)$", "", name)


@pytest.mark.parametrize("page", [page for page in PAGES if any(queries(page))], ids=str)
def test_promql_names_series_and_labels_that_exist(page: Page) -> None:
    for query in queries(page):
        series = [(metric(name), selector) for name, selector in SERIES.findall(query)]
        assert all(name in BY_NAME for name, _ in series), query
        carried = {label for name, _ in series for label in BY_NAME[name].labels} | OF_SCRAPING
        for name, selector in series:
            selected = set(re.findall(r"(\w+) *(?:=~|!~|!=|=)", selector))
            assert selected <= {*BY_NAME[name].labels, *OF_SCRAPING}, query
        grouped = {label.strip() for labels in GROUPED.findall(query) for label in labels.split(",") if label.strip()}
        assert grouped <= carried, query
        assert query.count("(") == query.count(")"), query


def test_messages_on_the_page_of_symptoms_end_with_a_next_step_of_the_table() -> None:
    page = next(page for page in PAGES if str(page) == "docs/troubleshooting.md")
    steps = {reason.row.todo for reason in Reason if reason.row.todo}
    endings = [
        re.escape(step).replace("NAMESPACE", r"\S+").replace("NAME", r"\S+").replace("POD", r"\S+") for step in steps
    ]
    lines = [line for block in page.blocks for line in block.text.splitlines() if "; " in line and line[0] not in "$ "]
    assert len(lines) >= 5
    for line in lines:
        assert any(re.search(f"; {ending}$", line) for ending in endings), line
