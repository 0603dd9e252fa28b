"""The documentation as tests read it: pages, their prose, links, anchors and blocks of code."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True)
class Block:
    language: str
    text: str


@dataclass(frozen=True)
class Page:
    path: Path

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def words(self) -> str:
        """The text without blocks of code and without comments."""
        return re.sub(r"<!--.*?-->", "", _FENCE.sub("", self.text), flags=re.DOTALL)

    @cached_property
    def blocks(self) -> list[Block]:
        return [
            Block(language, re.sub(f"^{indent}", "", text, flags=re.MULTILINE))
            for indent, language, text in _FENCE.findall(self.text)
        ]

    @cached_property
    def links(self) -> list[str]:
        """Targets of all links and pictures that are no web addresses."""
        text = re.sub(r"`[^`]*`", "`", self.words)
        return [target for target in _LINK.findall(text) if "://" not in target]

    @cached_property
    def anchors(self) -> set[str]:
        """The names of the headings, as a forge and as mkdocs make them."""
        titles = [
            _LINK.sub(lambda link: link[0][1 : link[0].index("]")], title) for title in _HEADING.findall(self.words)
        ]
        return {slug(title) for title in titles}

    def sentences(self) -> Iterator[int]:
        """The number of words of each sentence of the prose: no headings, no tables, a list item apart."""
        lines = [line for line in self.words.splitlines() if not line.lstrip().startswith(("#", "|", "!["))]
        text = re.sub(r"^ *(?:[-*]|\d+\.) +", "\n\n", "\n".join(lines), flags=re.MULTILINE)
        text = _LINK.sub(lambda link: link[0][1 : link[0].index("]")], re.sub(r"`[^`]*`", "code", text))
        for paragraph in re.split(r"\n\s*\n", re.sub(r"<[^>\n]+>", "", text)):
            for sentence in _SENTENCE.split(paragraph.strip()):
                if words := re.findall(r"[^\s–—]+", sentence):
                    yield len(words)


def slug(title: str) -> str:
    """A heading's anchor."""
    return re.sub(r"[^\w\- ]", "", title.replace("`", "")).strip().lower().replace(" ", "-")


PAGES = tuple(
    Page(path)
    for path in (
        *sorted(ROOT.glob("*.md")),
        ROOT / "examples/README.md",
        ROOT / "locks/README.md",
        *sorted(DOCS.rglob("*.md")),
    )
)
