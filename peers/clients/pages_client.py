"""Every block of code in docs/how-to/clients, run in its order."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import FOLDER, blocks, program

SECONDS = 900
PAGES = sorted(FOLDER.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_pages_code_runs(page: Path, url: str, tmp_path: Path) -> None:
    languages = {language for language, _ in blocks(page)}
    assert languages
    assert languages <= {"python", "sh", "yaml"}
    if "python" in languages:
        said = run([sys.executable, "-c", program(page, "python", url)], tmp_path)
        assert "Paris" in said
    if "sh" in languages:
        said = run(["bash", "-euo", "pipefail", "-c", program(page, "sh", url)], tmp_path)
        assert '"smollm2"' in said
        assert '"error"' not in said


def test_the_schema_is_kept(url: str, tmp_path: Path) -> None:
    (text,) = [text for _, text in blocks(FOLDER / "curl.md") if "json_schema" in text]
    said = json.loads(run(["bash", "-euo", "pipefail", "-c", text.replace("http://localhost:8000", url)], tmp_path))
    assert json.loads(said["choices"][0]["message"]["content"])["name"] in ("Paris", "Berlin")


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=folder)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout
