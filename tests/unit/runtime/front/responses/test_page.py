"""The code of docs/how-to/responses.md, run against the scripted engine."""

from pathlib import Path

from tests.unit.house.pages import Page

from ..conftest import Front
from ..page_code import run_blocks

PAGE = Page(Path(__file__).parents[5] / "docs/how-to/responses.md")


def test_the_pages_code_runs_in_its_order(front: Front) -> None:
    blocks, said, names = run_blocks(PAGE, front, "echo")
    assert blocks == 6
    assert "completed Answer in one sentence.What is the capital of France?" in said
    assert "Count to five." in said
    assert names["response"].status == "completed"
