"""https:// files with a checksum: archives, single files, and archives that attack."""

import gzip
import hashlib
import io
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from graphpod_sources.problem import Reason
from graphpod_sources.stores.http_client import Http
from graphpod_sources.stores.https_file import Web
from graphpod_sources.transfer.download import RESTARTS
from graphpod_sources.unpack import tree
from graphpod_sources.uri import ModelUri, Scheme
from stubs.faults.fault import Cut, Fault, Turn
from stubs.web import Reply, WebStub, Where
from tests.unit.sources.fetching import CONFIG, MODEL, WEIGHTS, Fetched, Script, endless, put, there
from tests.unit.sources.registry import link, part, tar


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def at(stub: WebStub | str, path: str) -> ModelUri:
    """As if it were https://: TLS is the client's, not ours."""
    address = stub if isinstance(stub, str) else stub.url
    return ModelUri(f"{address}/{path}", Scheme.Web, "127.0.0.1", path)


def unpacked(content: bytes, root: Path, name: str = "model.tar", sha256: str | None = None) -> Fetched:
    script = Script(lambda asked: part(content, asked))
    with script.serving() as stub:
        return Fetched(at(stub, name), root, sha256=sha256 or hashlib.sha256(content).hexdigest(), stall=1.0)


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("model.tar", bytes),
        ("model.tar.gz", gzip.compress),
        ("model.tgz", gzip.compress),
        ("model.tar.zst", zstandard.compress),
        ("model.tar.gz", bytes),
    ],
)
def test_an_archive_becomes_the_models_folder_whatever_it_is_packed_with(
    root: Path, name: str, pack: type[bytes]
) -> None:
    content = pack(tar({f"tiny-v1/{path}": data for path, data in MODEL.items()} | {"tiny-v1/run.py": b"import os"}))
    done = unpacked(content, root, name)
    assert done.problem is None
    assert there(root / "model") == MODEL
    assert done.manifest is not None
    assert done.manifest.commit == f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_a_checksum_is_required_and_must_be_the_files(root: Path) -> None:
    assert Fetched("https://127.0.0.1/model.tar", root).reason is Reason.BadUri
    assert unpacked(tar(MODEL), root, sha256="0" * 64).reason is Reason.ChecksumMismatch
    assert there(root / "model") == {}
    assert Fetched("s3://bucket/x", root, sha256="0" * 64).reason is Reason.BadUri


def test_an_archive_is_resumed_where_its_connection_ended(root: Path) -> None:
    content = tar(MODEL)
    script = Script(lambda asked: part(content, asked))
    with script.serving() as stub:
        stub.board.add(Fault(Cut(after_bytes=1_000_000), Where(), Turn(first=2, times=2)))
        done = Fetched(at(stub, "model.tar"), root, sha256=hashlib.sha256(content).hexdigest())
    assert done.problem is None
    assert done.progress.received == len(content)


def test_a_server_without_ranges_or_without_a_size_is_read_from_the_start_again(root: Path) -> None:
    content = tar(MODEL)
    script = Script(lambda asked: Reply(200, {}, content))
    with script.serving() as stub:
        stub.board.add(Fault(Cut(after_bytes=1_000_000), Where(), Turn(first=2, times=1)))
        done = Fetched(at(stub, "model.tar"), root, sha256=hashlib.sha256(content).hexdigest())
    assert done.problem is None
    assert there(root / "model") == MODEL
    assert done.progress.snapshot().bytes == len(content)


def test_a_server_without_ranges_that_always_ends_early_is_not_read_for_ever(root: Path) -> None:
    content = tar(MODEL)
    script = Script(lambda asked: Reply(200, {}, content))
    with script.serving() as stub:
        stub.board.add(Fault(Cut(after_bytes=1_000_000), Where(), Turn(first=2, times=None)))
        done = Fetched(at(stub, "model.tar"), root, sha256=hashlib.sha256(content).hexdigest())
    assert done.reason is Reason.Truncated
    assert len(script.asked) <= 2 + RESTARTS


def test_a_file_that_became_shorter_has_no_end_of_its_longer_self(root: Path) -> None:
    content = tar(MODEL)
    longer = iter([content + bytes(100_000)])
    script = Script(lambda asked: Reply(200, {}, content if "range" in asked.headers else next(longer, content)))
    with script.serving() as stub:
        stub.board.add(Fault(Cut(after_bytes=len(content) + 50_000), Where(), Turn(first=2, times=1)))
        uri = at(stub, "model.tar")
        source = Web(uri, Http(1.0), hashlib.sha256(content).hexdigest(), None)
        listing = source.listing()
        unknown = replace(listing, files=(replace(listing.files[0], size=None),))
        source.listing = lambda: unknown  # type: ignore[method-assign]
        done = Fetched(uri, root, source=source)
    assert done.problem is None
    assert there(root / "model") == MODEL


def test_an_archive_that_was_replaced_between_two_requests_has_changed(root: Path) -> None:
    content = tar(MODEL)
    versions = iter(range(100))

    def answer(asked: object) -> Reply:
        return Reply(200, {"ETag": f'"{next(versions)}"'}, content)

    with Script(answer).serving() as stub:  # type: ignore[arg-type]
        done = Fetched(at(stub, "model.tar"), root, sha256=hashlib.sha256(content).hexdigest())
    assert done.reason is Reason.ChangedUnderUs


def test_a_body_without_an_end_stops_at_a_bound(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphpod_sources.transfer.download.Download.__init__.__defaults__", (2, 1 << 20, 4 << 20))
    with endless(b"HTTP/1.1 200 OK\r\n\r\n") as forever:
        done = Fetched(at(forever, "model.tar"), root, sha256="0" * 64)
    assert done.reason is Reason.ChangedUnderUs
    assert done.progress.received <= 4 << 20


def test_links_inside_the_archive_become_files(root: Path) -> None:
    blobs = {"blobs/a.safetensors": WEIGHTS, "blobs/c.json": CONFIG}
    links = (
        link("snap/model.safetensors", "../blobs/a.safetensors"),
        link("snap/config.json", "blobs/c.json", tarfile.LNKTYPE),
    )
    done = unpacked(tar(blobs, *links), root)
    assert done.problem is None
    assert there(root / "model") == {"model.safetensors": WEIGHTS, "config.json": CONFIG}
    assert not any(path.is_symlink() for path in (root / "model").rglob("*"))


def special(kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo("vocab.json")
    member.type = kind
    return member


@pytest.mark.parametrize(
    "member",
    [
        tarfile.TarInfo("../outside.json"),
        tarfile.TarInfo("/absolute.json"),
        tarfile.TarInfo("a/../../outside.json"),
        tarfile.TarInfo("../outside.bin"),
        tarfile.TarInfo("x\\y.json"),
        tarfile.TarInfo("/".join("d" * 20) + "/x.json"),
        tarfile.TarInfo(".graphpod.json"),
        link("vocab.json", "/etc/passwd"),
        link("vocab.json", "../../etc/passwd"),
        link("vocab.json", "gone.json"),
        link("vocab.json", "vocab.json"),
        link("vocab.json", "/etc/shadow", tarfile.LNKTYPE),
        link("vocab.json", "../secret", tarfile.LNKTYPE),
        special(tarfile.CHRTYPE),
        special(tarfile.BLKTYPE),
        special(tarfile.FIFOTYPE),
    ],
    ids=lambda member: f"{member.type!r} {member.name[:20]} {member.linkname}",
)
def test_a_member_that_attacks_is_refused_and_nothing_is_left(root: Path, member: tarfile.TarInfo) -> None:
    done = unpacked(tar(MODEL, member), root)
    assert done.reason is Reason.BadArchive
    parts = [path for path in root.rglob("*") if path.is_file()]
    assert all(".partial" in path.parts or path.name == "model.lock" for path in parts)
    assert {path.name for path in root.parent.iterdir()} == {"cache"}


def test_a_folder_that_is_a_link_leads_nowhere(root: Path, tmp_path: Path) -> None:
    outside = put(tmp_path / "outside", {"x.json": b"safe"})
    attack = tar({}, link("models", str(outside)))[:-10240] + tar({"models/x.json": b"attack", **MODEL})
    assert unpacked(attack, root).problem is None
    assert (outside / "x.json").read_bytes() == b"safe"


def sparse() -> bytes:
    member = tarfile.TarInfo("x.safetensors")
    member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 50)}
    member.size = 512
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(member, io.BytesIO(b"1\n0\n1125899906842624\n".ljust(512, b"\0")))
    return out.getvalue()


def oversized_header() -> bytes:
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.XHDTYPE, 1 << 40
    return member.tobuf(tarfile.GNU_FORMAT) + bytes(10240)


@pytest.mark.parametrize(
    "content",
    [
        *(
            b"",
            b"no archive at all" * 100,
            os.urandom(4096),
            b"\x1f\x8b" + bytes(100),
            b"\x28\xb5\x2f\xfd" + bytes(100),
        ),
        *(gzip.compress(tar(MODEL))[:-1000], zstandard.compress(tar(MODEL))[:-1000], sparse(), oversized_header()),
        tar({"a": b"", "a/config.json": b"{}", "a.json": b"", "a.json/b.json": b""}),
    ],
    ids=["empty", "text", "random", "gzip", "zstd", "cut gzip", "cut zstd", "sparse", "header", "file and folder"],
)
def test_what_is_no_whole_archive_is_refused(root: Path, content: bytes) -> None:
    assert unpacked(content, root).reason in (Reason.BadArchive, Reason.NoWeights)


def test_an_archive_that_unpacks_to_a_hundred_times_its_size_is_a_bomb(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "LEAST", 1 << 20)
    bomb = gzip.compress(tar({"zeros.txt": bytes(8 << 20), **MODEL, "model.safetensors": bytes(8 << 20)}))
    done = unpacked(bomb, root, "model.tar.gz")
    assert done.reason is Reason.BadArchive
    assert sum(path.stat().st_blocks * 512 for path in root.rglob("*")) < 4 << 20


def test_more_members_than_a_model_has_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MOST_MEMBERS", 50)
    assert unpacked(tar({f"{number}.json": b"{}" for number in range(60)}), root).reason is Reason.BadArchive


def test_what_include_names_and_no_model_has_is_left_in_the_archive(root: Path) -> None:
    content = tar(MODEL | {"README.md": b"#", "run.py": b"x"})
    script = Script(lambda asked: part(content, asked))
    with script.serving() as stub:
        digest = hashlib.sha256(content).hexdigest()
        done = Fetched(at(stub, "model.tar"), root, sha256=digest, include=["*"])
    assert done.problem is None
    assert there(root / "model") == MODEL


def test_an_archive_without_weights_or_with_two_models_says_so(root: Path) -> None:
    pickled = unpacked(tar({"m/config.json": CONFIG, "m/pytorch_model.bin": b"x"}), root)
    assert pickled.reason is Reason.PickledWeights
    two = tar({f"{name}/{path}": content for name in "ab" for path, content in MODEL.items()})
    done = unpacked(two, root)
    assert done.reason is Reason.NoWeights
    assert done.problem is not None
    assert "'a', 'b'" in done.problem.message
