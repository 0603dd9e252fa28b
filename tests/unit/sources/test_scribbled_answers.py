"""What servers answer, and what lies in a folder or a Secret: read, or refused by one error, whatever stands there."""

import http.client
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphpod_sources import manifest
from graphpod_sources.credentials import DOCKER, Credentials
from graphpod_sources.listing import RemoteFile
from graphpod_sources.problem import Problem
from graphpod_sources.selection import check_config, check_index
from graphpod_sources.stores.http_client import Reply, retry_after
from graphpod_sources.stores.hub import Hub
from graphpod_sources.stores.oci import Registry
from graphpod_sources.transfer.finished import Finished
from graphpod_sources.transfer.part import FOLDER
from graphpod_sources.uri import Scheme, parse
from tests.scribbles import DEEP, LONG, put, read_or, scribbled
from tests.unit.sources.fetching import COMMIT

DIGEST = "a" * 64
TREE = [
    {"type": "file", "path": "config.json", "size": 10, "oid": "b" * 40},
    {"type": "file", "path": "a.safetensors", "size": 10, "oid": "b" * 40, "lfs": {"oid": DIGEST, "size": 10}},
    {"type": "directory", "path": "onnx", "size": 0, "oid": "b" * 40},
]
REVISION = {"sha": COMMIT}
LAYERS = {
    "schemaVersion": 2,
    "mediaType": "application/vnd.oci.image.manifest.v1+json",
    "layers": [
        {"digest": f"sha256:{DIGEST}", "size": 10, "mediaType": "application/vnd.oci.image.layer.v1.tar"},
        {"digest": f"sha256:{DIGEST}", "size": 10, "mediaType": "x",
         "annotations": {"org.opencontainers.image.title": "config.json"}},
    ],
}  # fmt: skip
INDEX = {
    "mediaType": "application/vnd.oci.image.index.v1+json",
    "manifests": [{"digest": f"sha256:{DIGEST}", "platform": {"os": "linux", "architecture": "amd64"}}],
}


class Answers:
    """A client of HTTP that gets these bodies, one after another, the last of them for ever."""

    def __init__(self, *bodies: str) -> None:
        self._bodies = [body.encode("utf-8", "surrogatepass") for body in bodies]

    def get(self, url: str, **_: Any) -> Any:
        body = self._bodies.pop(0) if len(self._bodies) > 1 else self._bodies[0]
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
        answer = http.client.HTTPResponse(SimpleNamespace(makefile=lambda mode: io.BytesIO(head + body)))  # type: ignore[arg-type]
        answer.begin()
        return Entered(Reply(200, dict(answer.getheaders()), url, answer))


class Entered:
    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def __enter__(self) -> Reply:
        return self._reply

    def __exit__(self, *_: object) -> None:
        pass


def are_files(files: tuple[RemoteFile, ...]) -> None:
    for file in files:
        assert file.size is not None
        assert 0 <= file.size < 1 << 50
        assert ".." not in Path(file.path).parts
        json.dumps([file.path, file.identity]).encode()


def hub(*bodies: str) -> None:
    with read_or(Problem):
        are_files(Hub(parse("hf://org/tiny"), Answers(*bodies), "https://hub", None).listing().files)  # type: ignore[arg-type]


def registry(*bodies: str) -> None:
    with read_or(Problem):
        uri = parse("oci://reg/org/tiny:v1")
        are_files(Registry(uri, Answers(*bodies), None, plain=False).listing().files)  # type: ignore[arg-type]


@given(scribbled(TREE))
@example(put(TREE, (0, "size"), float("inf")))
@example(put(TREE, (1, "lfs", "size"), float("inf")))
@example(put(TREE, (0, "path"), "\ud800"))
def test_a_hub_s_list_of_files_may_be_anything(tree: Any) -> None:
    hub(json.dumps(REVISION), json.dumps(tree))


@given(scribbled(REVISION))
def test_a_hub_s_commit_may_be_anything(revision: Any) -> None:
    hub(json.dumps(revision), json.dumps(TREE))


@given(scribbled(LAYERS))
@example(put(LAYERS, ("layers", 0, "size"), float("inf")))
@example(put(LAYERS, ("layers", 1, "annotations"), [1]))
@example(put(LAYERS, ("mediaType",), []))
def test_a_registry_s_manifest_may_be_anything(content: Any) -> None:
    registry(json.dumps(content))


@given(scribbled(INDEX))
@example(put(INDEX, ("mediaType",), {}))
def test_a_registry_s_index_may_be_anything(index: Any) -> None:
    registry(json.dumps(index))


@pytest.mark.parametrize("text", [DEEP, LONG, "", "nul", "\udcff", "null"])
@pytest.mark.parametrize("ask", [hub, registry])
def test_an_answer_that_is_no_json_is_refused(ask: Any, text: str) -> None:
    ask(text)


HEADERS = st.text("0123456789 bytes-/*,:+GMTMonNov²", max_size=40)
FOR_EVER = f"Mon, 20 Nov {'9' * 20} 10:00:00 GMT"


@given(HEADERS, st.sampled_from([200, 206]))
@example(FOR_EVER, 200)
@example("Mon, 20 Nov 2023 99999999999999999999:00:00 GMT", 200)
@example("Mon, 20 Nov 2023 10:00:00 +99999999999", 200)
@example(f"bytes {LONG}-{LONG}/{LONG}", 206)
@example("bytes 0-1/*", 206)
@example(LONG, 200)
def test_headers_of_an_answer_may_say_anything(text: str, status: int) -> None:
    names = ("retry-after", "content-range", "content-length")
    response: Any = None
    reply = Reply(status, dict.fromkeys(names, text), "https://host/file", response)
    assert (retry_after(reply.headers) or 0.0) >= 0
    assert (reply.range_start() or 0) >= 0
    assert (reply.total() or 0) >= 0


CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "text_config": {}, "auto_map": {"a": "b"}}
WEIGHTS = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}


@given(scribbled(CONFIG, WEIGHTS))
@example(put(CONFIG, ("architectures",), {"": 1}))
@example(put(WEIGHTS, ("weight_map", "a"), "\ud800"))
def test_a_config_and_an_index_may_be_anything(content: Any) -> None:
    text = json.dumps(content).encode()
    with read_or(Problem):
        check_config(text, "hf://org/tiny")
    with read_or(Problem):
        check_index(text, ["one.safetensors"], "hf://org/tiny")


AUTHS = {"auths": {"https://reg/v2/": {"auth": "dTpw"}, "reg": {"username": "u", "password": "p"}}}


@given(scribbled(AUTHS))
@example(put(AUTHS, ("auths", "https://reg/v2/", "auth"), "é"))
@example(put(AUTHS, ("auths", "https://reg/v2/", "auth"), 1))
@example({"auths": {"reg": {"username": "\ud800", "password": "p"}}})
def test_a_secret_of_a_registry_may_be_anything(auths: Any) -> None:
    with read_or(Problem):
        found = Credentials({DOCKER: json.dumps(auths)}).registry("reg")
        assert found is None or ":".join(found).encode()


MANIFEST = {
    "uri": "hf://o/n", "revision": "main", "commit": COMMIT, "bytes": 1, "completed": "2026-01-01T00:00:00Z",
    "used": "2026-01-01T00:00:00Z", "files": [{"path": "a", "bytes": 1, "sha256": DIGEST}],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (made := tmp_path_factory.mktemp("model") / FOLDER).mkdir()
    return made.parent


@given(scribbled(MANIFEST))
@example(put(MANIFEST, ("bytes",), float("inf")))
@example(put(MANIFEST, ("files", 0, "path"), "\x00"))
@example(put(MANIFEST, ("files", 0, "path"), "x" * 5000))
def test_a_manifest_may_be_anything(folder: Path, content: Any) -> None:
    (folder / manifest.NAME).write_text(json.dumps(content))
    found = manifest.read(folder)
    if found is not None:
        assert found.missing(folder) == [file.path for file in found.files]


ROW = ["a.safetensors", 4, "identity"]


@given(scribbled(ROW).map(json.dumps) | st.text())
@example(json.dumps(["a", float("inf"), "b"]))
@example(DEEP)
@example("\udcff")
def test_the_list_of_finished_files_may_hold_anything(folder: Path, line: str) -> None:
    text = f"{line}\n{json.dumps(ROW)}\n"
    (folder / FOLDER / "finished").write_bytes(
        text.encode("utf-8", "surrogateescape" if line == "\udcff" else "replace")
    )
    assert not Finished(folder).has(RemoteFile("a.safetensors", 4, "a", sha256=DIGEST))


FORMS = ("hf://org/name@main/x", "s3://bucket/a/b", "gs://bucket", "az://box/a", "https://host:1/a.tar?x=y",
         "oci://reg:5000/a/b:tag", f"oci://reg/a@sha256:{DIGEST}", "file:///a/b")  # fmt: skip


@st.composite
def uris(draw: st.DrawFn) -> str:
    """One of the forms with something in the middle."""
    form = draw(st.sampled_from(FORMS))
    at = draw(st.integers(0, len(form)))
    more = draw(
        st.sampled_from(["%2e%2e/", "%00", "..", "//", "@", ":", "[", "]", "\\", "\ud800", "%", "é", "#", "?"])
        | st.text()
    )
    return form[:at] + more + form[at + draw(st.integers(0, 3)) :]


@given(uris())
@example("file:///a/%2e%2e/b")
@example("hf://o/n@%2e%2e%2f%2e%2e")
@example("https://[::1/a")
@example(f"https://host:{LONG[:1000]}/a")
def test_a_uri_names_a_place_or_is_refused(text: str) -> None:
    with read_or(Problem):
        found = parse(text)
        for part in (found.path, found.revision) if found.scheme is not Scheme.Web else ():  # its file's name is judged
            assert ".." not in part.split("/")
            assert "\x00" not in part
