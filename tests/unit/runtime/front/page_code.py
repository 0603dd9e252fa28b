"""Programs of the documentation, run against a server."""

import io
from contextlib import redirect_stdout
from typing import Any

from tests.unit.house.pages import Page

from .conftest import Front

ADDRESS, MODEL = "http://localhost:8000", "smollm2"
"""Of the server and of the model that the pages speak of."""


def run_blocks(page: Page, front: Front, model: str = MODEL) -> tuple[int, str, dict[str, Any]]:
    """Runs the page's blocks of Python in their order, as one program that asks `model` of `front`. How many there are,
    what they print, and the names that they leave.
    """
    blocks = [block.text for block in page.blocks if block.language == "python"]
    names: dict[str, Any] = {}
    with redirect_stdout(io.StringIO()) as said:
        for text in blocks:
            exec(compile(text.replace(ADDRESS, front.http).replace(MODEL, model), page.path.name, "exec"), names)
    return len(blocks), said.getvalue(), names
