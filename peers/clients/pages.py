"""The code of a page of docs/how-to/clients, as one program."""

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "clients"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "http://localhost:8000"


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of each block; a block without a language is for a shell."""
    return [(language or "sh", text) for language, text in BLOCK.findall(page.read_text())]


def program(page: Path, language: str, url: str) -> str:
    """All blocks of one language in their order, for the server at `url`."""
    return "\n".join(text for kind, text in blocks(page) if kind == language).replace(ADDRESS, url)
