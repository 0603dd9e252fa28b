"""Every block of docs/how-to/python.md runs."""

import re
from pathlib import Path

import pytest
from transformers import LlamaForCausalLM

PAGE = Path("docs/how-to/python.md")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_the_page_has_blocks() -> None:
    assert len(BLOCKS) >= 4


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_of_the_page_runs(
    number: int, llama: tuple[Path, LlamaForCausalLM], capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(BLOCKS[number], f"{PAGE}, block {number}", "exec"), {"MODEL": llama[0]})
    capsys.readouterr()
