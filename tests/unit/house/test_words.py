"""Words that our texts do not use, anywhere outside tests: sources, charts, examples, documentation.

The rule is one regular expression over every text file. Each word has a plainer one: report, show (told, tells), again
(anew), next to, besides (beside), fix (mend), no client, no process (nobody), requested explicitly (asked for by name),
minimum level (least grave), failed permanently (ended for good).
"""

import re
import subprocess

import pytest

from tests.unit.house.pages import ROOT

AVOIDED = re.compile(
    r"\b(told|tells|anew|beside|nobody|mend|mends|mended|mending)\b"
    r"|\basked for (it )?by name\b|\bsuch that are none\b|\bended for good\b|\bleast grave\b|\bthe house\b",
    re.IGNORECASE,
)
OF_OTHERS = ("truth/text/",)
"""Texts that we did not write: prompts of the truth matrix."""


def texts() -> list[str]:
    """Our text files outside tests."""
    command = ["git", "grep", "-lI", "", "--", ".", ":!tests"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if not name.startswith(OF_OTHERS)]


def found(name: str) -> list[str]:
    """Lines of a file that use one of the words, with their numbers."""
    lines = (ROOT / name).read_text().splitlines()
    return [f"{name}:{number}: {line.strip()}" for number, line in enumerate(lines, 1) if AVOIDED.search(line)]


def test_no_text_outside_tests_uses_a_word_that_we_avoid() -> None:
    names = texts()
    assert len(names) > 400
    assert [line for name in names for line in found(name)] == []


@pytest.mark.parametrize(
    ("text", "avoided"),
    [
        ("the status is told twice", True),
        ("Nobody waits", True),
        ("a policy asked for by name", True),
        ("nobody@example.com", True),
        ("besides, `_told` and `retold` are other words", False),
        ("report it again, next to the table", False),
    ],
)
def test_a_word_counts_as_a_whole(text: str, avoided: bool) -> None:
    assert (AVOIDED.search(text) is not None) == avoided
