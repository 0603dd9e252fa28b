"""Weights from a source into a model without a disk between: equal to those of a folder, and no byte more."""

import json
import signal
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from graphpod_policy import ExitCode, Policy, StreamConfig
from graphpod_runtime.base.errors import ModelInvalid, SourceFailed
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.cli import main
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.models.model import Model
from graphpod_runtime.streaming import blocks as planning
from graphpod_runtime.streaming import folder as streaming
from graphpod_runtime.streaming import tensors as staging
from graphpod_runtime.streaming.blocks import blocks
from graphpod_runtime.streaming.folder import NAME, is_streamed, prepare, streamed
from graphpod_runtime.streaming.headers import header
from graphpod_runtime.streaming.reader import Reader
from graphpod_sources.listing import RemoteFile
from graphpod_sources.problem import Problem, Reason
from stubs import hub, s3
from stubs.faults.fault import Answer, Cut, Fault, Freeze, Turn
from stubs.signature import Key
from stubs.web import WebStub, Where
from tests.unit.runtime.conftest import engine_config, write_family, write_llama
from tests.unit.runtime.streaming.test_blocks import file_of

KEY = Key("reader", "not a secret")
URI = "s3://models/team/tiny"
WEIGHTS = "model.safetensors"


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not read of a buffer is no number."""
    monkeypatch.setattr(staging, "_plain", lambda count: torch.full((count,), 0xFF, dtype=torch.uint8))


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """The folder that the bucket serves."""
    place = tmp_path / "served/models/team/tiny"
    place.mkdir(parents=True)
    return place


@pytest.fixture
def storage(origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebStub]:
    with s3.serve(tmp_path / "served", KEY).serving() as stub:
        secret = tmp_path / "secret"
        secret.mkdir()
        for name, text in (
            ("AWS_ACCESS_KEY_ID", KEY.id),
            ("AWS_SECRET_ACCESS_KEY", KEY.secret),
            ("hosts", stub.url),
        ):
            (secret / name).write_text(text)
        monkeypatch.setattr(streaming, "CREDENTIALS", secret)
        monkeypatch.setenv("AWS_ENDPOINT_URL", stub.url)
        yield stub


def loaded(folder: Path, **settings: Any) -> Model:
    return load_model(folder, torch.float32, 64, HOST, **settings)


def equal(one: Model, other: Model) -> bool:
    """A stage has a head or not: what it has not is not set."""
    whole = one.shape.stage is None
    left, right = ((model.module() if whole else model.body).state_dict() for model in (one, other))
    pairs = zip(left.items(), right.items(), strict=True)
    return all(name == same and torch.equal(a, b) for (name, a), (same, b) in pairs)


def read_of(stub: WebStub, path: str = WEIGHTS) -> int:
    """Requests for a file."""
    return sum(count for name, count in stub.counts().items() if name.endswith(path))


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_a_streamed_model_is_the_one_of_the_folder(storage: WebStub, origin: Path, tmp_path: Path, family: str) -> None:
    write_llama(origin) if family == "llama" else write_family(origin, family)
    here = tmp_path / "here"
    prepare(here, StreamConfig(URI))
    assert is_streamed(here)
    assert not list(here.glob("*.safetensors")), "no weight is on the disk"
    assert equal(loaded(here), loaded(origin))


@pytest.mark.parametrize("settings", [{"ranks": 3}, {"stages": 3}, {"ranks": 3, "quantize": True}])
def test_a_rank_reads_its_rows_and_its_layers(
    storage: WebStub, origin: Path, tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small gap keeps what is not wanted out of requests; of this model no tensor is large."""
    monkeypatch.setattr(planning, "GAP", 0)
    write_llama(origin, tied=False, vocab_size=210)
    here = tmp_path / "here"
    prepare(here, StreamConfig(URI))
    whole, parts = (origin / WEIGHTS).stat().st_size, []
    sizes: list[int] = []
    actual = staging.blocks
    monkeypatch.setattr(staging, "blocks", lambda *given: noted(actual(*given), sizes))
    for one in range(3):
        own = {"rank": one} if "ranks" in settings else {"stage": one}
        parts.append(loaded(here, **settings, **own))
        assert equal(parts[-1], loaded(origin, **settings, **own))
    assert len(sizes) == 3
    assert max(sizes) < 0.75 * whole


def noted(found: list[planning.Block], sizes: list[int]) -> list[planning.Block]:
    sizes.append(sum(end - start for block in found for start, end in block.pieces))
    return found


def test_a_hub_is_read_at_the_commit_of_its_small_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "hub/org/tiny/main"
    place.mkdir(parents=True)
    write_llama(place)
    with hub.serve(tmp_path / "hub").serving() as stub:
        monkeypatch.setenv("HF_ENDPOINT", stub.url)
        monkeypatch.setattr(streaming, "CREDENTIALS", tmp_path / "no Secret")
        here = tmp_path / "here"
        found = prepare(here, StreamConfig("hf://org/tiny@main"))
        assert found == streamed(here)
        assert found.uri == f"hf://org/tiny@{hub.commit(place)}"
        assert equal(loaded(here), loaded(place))


def test_several_files_are_those_of_the_index(storage: WebStub, origin: Path, tmp_path: Path) -> None:
    write_llama(origin)
    tensors = load_file(origin / WEIGHTS)
    (origin / WEIGHTS).unlink()
    halves = [dict(list(tensors.items())[::2]), dict(list(tensors.items())[1::2])]
    for number, half in enumerate(halves):
        save_file(half, origin / f"part-{number}.safetensors")
    save_file({"other": torch.zeros(3)}, origin / "unlisted.safetensors")
    listed = {name: f"part-{number}.safetensors" for number, half in enumerate(halves) for name in half}
    (origin / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
    here = tmp_path / "here"
    prepare(here, StreamConfig(URI))
    assert [file.remote.path for file in streamed(here).files] == ["part-0.safetensors", "part-1.safetensors"]
    assert equal(loaded(here), loaded(origin))


def test_a_cut_connection_goes_on_where_it_ended(storage: WebStub, origin: Path, tmp_path: Path) -> None:
    write_llama(origin, vocab_size=20_000)  # one tensor of 11 MB
    here = tmp_path / "here"
    prepare(here, StreamConfig(URI))
    storage.board.add(Fault(Cut(after_bytes=3_000_000), Where(path=".safetensors"), Turn(times=2)))
    before = read_of(storage)
    assert equal(loaded(here), loaded(origin))
    assert read_of(storage) > before + 1


@pytest.mark.parametrize(
    ("effect", "reason"),
    [
        (Answer(403), "Unauthorized"),
        (Answer(404), "NotFound"),
        (Answer(500), "ServerError"),
        (Freeze(), "Stalled"),
    ],
)
def test_what_ends_a_read_is_named_with_its_next_step(
    storage: WebStub, origin: Path, tmp_path: Path, effect: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "STALL_SECONDS", 0.6)
    monkeypatch.setattr(streaming, "STALL_SECONDS", 0.6)
    write_llama(origin)
    here = tmp_path / "here"
    prepare(here, StreamConfig(URI))
    storage.board.add(Fault(effect, Where(path=".safetensors")))
    with pytest.raises(SourceFailed, match=rf"^{reason}: .*; ") as caught:
        loaded(here)
    assert "Job" not in str(caught.value)
    assert KEY.secret not in str(caught.value)


def test_weights_that_are_replaced_after_the_small_files_have_changed(
    storage: WebStub, origin: Path, tmp_path: Path
) -> None:
    write_llama(origin)
    here = tmp_path / "here"
    prepare(here, StreamConfig(URI))
    data = bytearray((origin / WEIGHTS).read_bytes())
    data[-1] ^= 1
    (origin / WEIGHTS).write_bytes(data)
    with pytest.raises(SourceFailed, match=r"^ChangedUnderUs: .*was replaced"):
        loaded(here)


def test_a_model_of_other_shapes_is_refused_before_its_weights_are_read(
    storage: WebStub, origin: Path, tmp_path: Path
) -> None:
    write_llama(origin)
    path = origin / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"hidden_size": 288}))
    here = tmp_path / "here"
    prepare(here, StreamConfig(URI))
    before = read_of(storage)
    with pytest.raises(ModelInvalid, match="has shape"):
        loaded(here)
    assert read_of(storage) == before


def test_another_start_forgets_the_files_of_the_one_before(storage: WebStub, origin: Path, tmp_path: Path) -> None:
    write_llama(origin)
    here = tmp_path / "here"
    (here / "folder").mkdir(parents=True)
    (here / "tokenizer.json").write_text("of another version")
    prepare(here, StreamConfig(URI))
    assert {path.name for path in here.iterdir()} == {"config.json", "generation_config.json", NAME}


REFUSED: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "a registry": ("oci://reg.example/team/tiny:v1", lambda _: None, "BadUri: .*set spec.model.cache instead"),
    "a file of a web server": ("https://host.example/a.tar", lambda _: None, "BadUri: .*set spec.model.cache instead"),
    "a GGUF file by name": (f"{URI}/tiny.gguf", lambda _: None, "BadUri: .*is one GGUF file.*spec.model.cache"),
    "a GGUF file alone": (
        URI,
        lambda folder: (folder / WEIGHTS).rename(folder / "tiny.gguf"),
        "NoWeights: .*is converted before it can be read.*spec.model.cache",
    ),
    "pickled weights": (
        URI,
        lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin"),
        "PickledWeights: ",
    ),
    "no config.json": (URI, lambda folder: (folder / "config.json").unlink(), "NoWeights: .*no config.json"),
    "code of its own": (
        URI,
        lambda folder: (folder / "config.json").write_text(
            json.dumps({"architectures": ["XForCausalLM"], "model_type": "x", "auto_map": {"AutoModel": "x.X"}})
        ),
        "CodeInRepository: ",
    ),
    "half a file": (
        URI,
        lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:20_000]),
        "NoWeights: .*not a whole safetensors file",
    ),
    "an empty file": (URI, lambda folder: (folder / WEIGHTS).write_bytes(b""), "NoWeights: .*not a whole safetensors"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_streamed_is_refused_before_anything_starts(
    storage: WebStub, origin: Path, tmp_path: Path, name: str
) -> None:
    uri, change, words = REFUSED[name]
    write_llama(origin)
    change(origin)
    with pytest.raises(SourceFailed, match=words):
        prepare(tmp_path / "here", StreamConfig(uri))


def test_hosts_and_the_secret_are_held_against_the_same_rules(
    storage: WebStub, origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_llama(origin)
    hosts = tmp_path / "hosts.json"
    for text, words in (
        ('["other.example"]', r"^HostNotAllowed: .*is not in allowed\.sourceHosts: other\.example"),
        ('["*"', r"^HostNotAllowed: the hosts in .*hosts\.json cannot be read"),
        ('{"*": 1}', r"^HostNotAllowed: the hosts in .*it is no list of texts"),
    ):
        hosts.write_text(text)
        with pytest.raises(SourceFailed, match=words):
            prepare(tmp_path / "here", StreamConfig(URI, str(hosts)))
    with pytest.raises(SourceFailed, match=r"No such file or directory"):
        prepare(tmp_path / "here", StreamConfig(URI, str(tmp_path / "none")))
    hosts.write_text('["127.0.0.1"]')
    assert prepare(tmp_path / "here", StreamConfig(URI, str(hosts))).hosts == ("127.0.0.1",)
    (streaming.CREDENTIALS / "hosts").write_text("other.example")
    with pytest.raises(SourceFailed, match=r"^SecretNotForHost: "):
        prepare(tmp_path / "here", StreamConfig(URI))
    for name, text in (("AWS_ACCESS_KEY_ID", KEY.id), ("AWS_SECRET_ACCESS_KEY", KEY.secret)):
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(streaming, "CREDENTIALS", tmp_path / "no Secret")
    with pytest.raises(SourceFailed, match=r"^Unauthorized: "):
        prepare(tmp_path / "here", StreamConfig(URI))


def test_the_pod_ends_by_the_cause_before_its_engine_starts(
    storage: WebStub, origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    given = engine_config(tmp_path, Policy.Disabled, Policy.Disabled)
    model = replace(given.model, path=str(tmp_path / "here"), stream=StreamConfig("s3://models/none"))
    file, log = tmp_path / "engine.json", tmp_path / "log"
    file.write_bytes(replace(given, model=model).canonical())
    ports = "--host", "127.0.0.1", "--http-port", "0", "--admin-port", "0"
    assert main(["serve", "--config", str(file), *ports, "--termination-log", str(log)]) == ExitCode.SourceFailed
    assert log.read_text().startswith("SourceFailed: NotFound: s3://models/none: no object is below this prefix")


HEADERS: dict[str, tuple[object, str]] = {
    "no map": ([], "no map of tensors"),
    "an unknown type": ({"a": {"dtype": "F3", "shape": [1], "data_offsets": [0, 4]}}, "unknown type"),
    "a wrong size": ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, "not where the header says"),
    "beyond the file": ({"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}, "not where the header says"),
    "a negative size": ({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}}, "no usable shape"),
    "no offsets": ({"a": {"dtype": "F32", "shape": [1]}}, "data_offsets"),
    "too many dimensions": ({"a": {"dtype": "F32", "shape": [1] * 99, "data_offsets": [0, 4]}}, "no usable shape"),
}


class Held:
    """A source that has one file in memory."""

    def __init__(self, content: bytes) -> None:
        self.content, self.asked = content, list[tuple[int, int]]()
        self.file = RemoteFile("a.safetensors", len(content), "a", etag="1")

    def listing(self) -> Any:
        raise NotImplementedError

    def read(self, file: RemoteFile, start: int, end: int | None) -> Iterator[bytes]:
        last = len(self.content) if end is None else end
        self.asked.append((start, last))
        yield self.content[start:last]


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_does_not_fit_its_file_is_refused(name: str) -> None:
    entries, words = HEADERS[name]
    head = json.dumps(entries).encode()
    source = Held(struct.pack("<Q", len(head)) + head + bytes(16))
    with pytest.raises(Problem, match=words) as caught:
        header(source, source.file)
    assert caught.value.reason is Reason.NoWeights


def test_a_long_header_takes_two_requests() -> None:
    entries = {f"{number:05}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for number in range(6000)}
    head = json.dumps(entries).encode()
    source = Held(struct.pack("<Q", len(head)) + head)
    assert len(header(source, source.file)) == 6000
    assert len(source.asked) == 2


def test_buffers_are_bounded_and_a_larger_block_comes_alone() -> None:
    content = bytes(range(256)) * 4096
    source, out, most = Held(content), [0], [0]
    file = file_of(*[1000] * 50, 300_000, *[1000] * 50)
    planned = [planning.Block(file, one.start, one.end, (one,), ((one.start, one.end),)) for one in file.tensors]

    def allocate(count: int) -> bytearray:
        out[0] += count
        most[0] = max(most[0], out[0])
        return bytearray(count)

    read = Reader(source, planned, allocate, memoryview, 5.0, connections=4, staging=5000)
    for block, buffer in read:
        assert buffer == content[block.start : block.end]
        out[0] -= block.size
    assert most[0] == 300_000
    assert read.rates.received == file.tensors[-1].end
    assert "GB/s" in str(read.rates)


def test_a_source_that_always_ends_early_is_named_once_nothing_moves() -> None:
    source, file = Held(b""), file_of(1000)
    read = Reader(source, blocks([file], {"0": [(0, 1000)]}), bytearray, memoryview, 0.3)
    with pytest.raises(Problem, match="ended at byte 0 of 1000") as caught:
        next(iter(read))
    assert caught.value.reason is Reason.Truncated


def test_what_breaks_in_a_connection_breaks_the_read() -> None:
    class Broken(Held):
        def read(self, file: RemoteFile, start: int, end: int | None) -> Iterator[bytes]:
            raise KeyError("no such thing")

    read = Reader(Broken(b""), blocks([file_of(10)], {"0": [(0, 10)]}), bytearray, memoryview, 5.0)
    with pytest.raises(KeyError, match="no such thing"):
        next(iter(read))
