"""The code of docs/how-to/responses.md, run against the scripted engine."""

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from tests.unit.house.pages import Page

from ..conftest import Front

PAGE = Page(Path(__file__).parents[5] / "docs/how-to/responses.md")


def test_the_pages_code_runs_in_its_order(front: Front) -> None:
    blocks = [block.text for block in PAGE.blocks if block.language == "python"]
    assert len(blocks) == 6
    names: dict[str, Any] = {}
    with redirect_stdout(io.StringIO()) as said:
        for text in blocks:
            here = text.replace("http://localhost:8000", front.http).replace("smollm2", "echo")
            exec(compile(here, PAGE.path.name, "exec"), names)
    assert "completed Answer in one sentence.What is the capital of France?" in said.getvalue()
    assert "Count to five." in said.getvalue()
    assert names["response"].status == "completed"
