"""The model hub, with the client that transformers uses; and ranges, which hub and storage share."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from stubs import hub
from stubs.faults.fault import Answer, Cut, Fault, Slow, Turn
from stubs.hub import commit
from stubs.web import Reply, WebStub, Where, inside, ranged, whole

WEIGHTS = os.urandom(2_000_000)
CONFIG = b'{"model_type": "llama"}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in {
        "main/config.json": CONFIG,
        "main/model.safetensors": WEIGHTS,
        "v1/config.json": b"{}",
    }.items():
        file = tmp_path / "served" / "org" / "tiny" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return tmp_path / "served"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def models(folder: Path) -> Iterator[WebStub]:
    with hub.serve(folder).serving() as stub:
        yield stub


def download(models: WebStub, cache: Path, file: str, revision: str = "main", token: str | bool = False) -> bytes:
    place = hf_hub_download(
        "org/tiny", file, revision=revision, token=token, endpoint=models.url, cache_dir=cache, etag_timeout=10
    )
    return Path(place).read_bytes()


def test_a_model_is_downloaded_whole_under_the_commit_of_its_revision(
    models: WebStub, folder: Path, cache: Path
) -> None:
    place = Path(snapshot_download("org/tiny", endpoint=models.url, cache_dir=cache, token=False))
    assert place.name == commit(folder / "org/tiny/main")
    assert (place / "model.safetensors").read_bytes() == WEIGHTS
    assert (place / "config.json").read_bytes() == CONFIG
    assert any(asked.startswith("GET /cdn/") for asked in models.counts()), "weights come from the content network"


def test_a_revision_is_named_by_branch_or_by_commit(models: WebStub, folder: Path, cache: Path) -> None:
    assert download(models, cache, "config.json", "v1") == b"{}"
    assert download(models, cache, "config.json", commit(folder / "org/tiny/main")) == CONFIG
    info = HfApi(endpoint=models.url, token=False).model_info("org/tiny", files_metadata=True)
    assert info.sha == commit(folder / "org/tiny/main")
    assert {s.rfilename: s.size for s in info.siblings or []} == {
        "config.json": len(CONFIG),
        "model.safetensors": len(WEIGHTS),
    }


def test_a_changed_file_is_another_commit(folder: Path) -> None:
    place = folder / "org/tiny/main"
    before = commit(place)
    (place / "config.json").write_bytes(b'{"changed": true}')
    assert commit(place) != before


def test_what_is_missing_is_named_so_that_the_client_knows_its_kind(models: WebStub, cache: Path) -> None:
    with pytest.raises(EntryNotFoundError):
        download(models, cache, "none.json")
    with pytest.raises(RevisionNotFoundError):
        download(models, cache, "config.json", "v9")
    with pytest.raises(RepositoryNotFoundError):
        hf_hub_download("org/none", "config.json", endpoint=models.url, cache_dir=cache, token=False)


def test_without_the_token_the_model_is_not_there(folder: Path, cache: Path) -> None:
    with hub.serve(folder, token="hf_right").serving() as models:
        with pytest.raises(RepositoryNotFoundError):
            download(models, cache, "config.json")
        with pytest.raises(HfHubHTTPError, match="Invalid credentials"):
            download(models, cache, "config.json", token="hf_wrong")
        assert download(models, cache, "config.json", token="hf_right") == CONFIG


@pytest.mark.parametrize(("status", "raised"), [(401, HfHubHTTPError), (403, GatedRepoError), (404, HfHubHTTPError)])
def test_a_refusal_reaches_the_client_as_what_it_is(
    models: WebStub, cache: Path, status: int, raised: type[Exception]
) -> None:
    models.board.add(Fault(Answer(status), Where()))
    with pytest.raises(raised):
        HfApi(endpoint=models.url, token=False).model_info("org/tiny")


def test_a_client_waits_when_there_were_too_many_requests(models: WebStub, cache: Path) -> None:
    armed = models.board.add(Fault(Answer(429, retry_after=1), Where(frozenset({"GET"}), "/cdn/"), Turn(times=1)))
    assert download(models, cache, "model.safetensors") == WEIGHTS
    assert armed.hits == 1


def test_a_download_cut_in_the_middle_goes_on_where_it_was(models: WebStub, cache: Path) -> None:
    models.board.add(Fault(Cut(after_bytes=700_000), Where(frozenset({"GET"}), "/cdn/"), Turn(times=1)))
    assert download(models, cache, "model.safetensors") == WEIGHTS
    assert sum(n for asked, n in models.counts().items() if asked.startswith("GET /cdn/")) == 2


def test_a_slow_download_ends_when_the_fault_is_lifted(models: WebStub) -> None:
    slow = models.board.add(Fault(Slow(bytes_per_second=1), Where(path="config.json")))
    with urllib.request.urlopen(f"{models.url}/org/tiny/resolve/main/config.json", timeout=10) as answer:
        begun = answer.read(1)
        models.board.lift(slow.number)
        assert begun + answer.read() == CONFIG


def test_files_are_put_through_the_control_port(models: WebStub, folder: Path, cache: Path) -> None:
    put = urllib.request.Request(f"{models.control_url}/files/org/tiny/v2/config.json", b'{"v": 2}', method="PUT")
    with urllib.request.urlopen(put, timeout=10) as answer:
        assert json.load(answer) == 8
    assert download(models, cache, "config.json", "v2") == b'{"v": 2}'
    outside = urllib.request.Request(f"{models.control_url}/files/../../x", b"x", method="PUT")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(outside, timeout=10)
    assert b"inside the folder" in refused.value.read()


def test_a_fault_of_another_stub_is_refused(models: WebStub) -> None:
    row = {"effect": "Answer", "status": 500, "resource": "pods"}
    ask = urllib.request.Request(f"{models.control_url}/faults", json.dumps(row).encode())
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(ask, timeout=10)
    assert b"has no resource; it has status" in refused.value.read()


@pytest.mark.parametrize(
    ("header", "status", "start", "end"),
    [
        (None, 200, 0, 10),
        ("bytes=0-3", 206, 0, 4),
        ("bytes=4-", 206, 4, 10),
        ("bytes=-3", 206, 7, 10),
        ("bytes=8-99", 206, 8, 10),
        ("bytes=-99", 206, 0, 10),
        ("bytes=10-", 416, 0, 0),
        ("bytes=-0", 416, 0, 0),
        ("bytes=-", 200, 0, 10),
        ("bytes=0-1,4-5", 200, 0, 10),
        ("lines=1-2", 200, 0, 10),
    ],
)
def test_a_range_is_a_part_of_a_file_or_none(
    tmp_path: Path, header: str | None, status: int, start: int, end: int
) -> None:
    file = tmp_path / "ten"
    file.write_bytes(b"0123456789")
    found = ranged(whole(file, {}), header)
    assert (found.status, found.start, found.end) == (status, start, end)
    if status == 206:
        assert found.headers["Content-Range"] == f"bytes {start}-{end - 1}/10"


def test_only_a_file_has_ranges() -> None:
    assert ranged(Reply(200, body=b"{}"), "bytes=0-0").status == 200


def test_a_path_that_leads_out_of_the_folder_leads_nowhere(tmp_path: Path) -> None:
    assert inside(tmp_path, "a/../b") == tmp_path / "b"
    assert inside(tmp_path, "../b") is None
    assert inside(tmp_path, "/etc/passwd") == tmp_path / "etc/passwd"
