"""The code of docs/how-to/messages.md, run against the scripted engine."""

from pathlib import Path

from tests.unit.house.pages import Page

from ..conftest import Front
from ..page_code import run_blocks

PAGE = Page(Path(__file__).parents[5] / "docs/how-to/messages.md")


def test_the_pages_code_runs_in_its_order(front: Front) -> None:
    blocks, said, _ = run_blocks(PAGE, front, "echo")
    assert blocks == 5
    assert "end_turn Answer in one sentence.What is the capital of France?" in said
    assert "Count to five." in said
    assert said.endswith(f"{len('Count to five.')}\n")
