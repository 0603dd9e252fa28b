"""mkdocs: what a page links to outside docs/ becomes part of the site, at its place in the repository."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(\]\()((?!\w+:|#)[^()\s]+)(\))")


def on_files(files: Files, config: Any) -> Files:
    waiting = [(file.src_uri, ROOT / "docs" / file.src_uri) for file in files.documentation_pages()]
    while waiting:
        uri, page = waiting.pop()
        for _, link, _ in LINK.findall(page.read_text()):
            target = (page.parent / link.partition("#")[0]).resolve()
            uri = site_uri(target)
            if target.is_file() and ROOT in target.parents and files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(target)))
                if target.suffix == ".md":
                    waiting.append((uri, target))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    source = Path(page.file.abs_src_path)

    def moved(link: re.Match[str]) -> str:
        name, mark, anchor = link[2].partition("#")
        target = (source.parent / name).resolve()
        uri = site_uri(target / "README.md" if target.is_dir() else target)
        return f"{link[1]}{posixpath.relpath(uri, posixpath.dirname(page.file.src_uri))}{mark}{anchor}{link[3]}"

    return LINK.sub(moved, markdown)


def site_uri(path: Path) -> str:
    """Where a file of the repository is in the site: docs/ is its root, and the first page is docs/index.md."""
    if path == ROOT / "README.md":
        return "index.md"
    return str(path.relative_to(ROOT / "docs" if ROOT / "docs" in path.parents else ROOT))
