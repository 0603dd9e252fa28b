"""oci:// against a registry: images, artifacts, indexes, logins, and registries that lie."""

import base64
import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import zstandard

from graphpod_sources.problem import Reason
from stubs.web import Reply, WebStub
from tests.unit.sources.fetching import CONFIG, MODEL, WEIGHTS, Fetched, Script, there
from tests.unit.sources.registry import INDEX, TAR, Registry, digest, link, part, tar

LOGIN = ("puller", "pa:ss")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def stub(registry: Registry) -> Iterator[WebStub]:
    with WebStub(registry, Reply).serving() as serving:
        yield serving


def host(stub: WebStub) -> str:
    return stub.url.removeprefix("http://")


def pulled(stub: WebStub, root: Path, tag: str = ":v1", environment: Mapping[str, str] | None = None) -> Fetched:
    return Fetched(f"oci://{host(stub)}/org/tiny{tag}", root, environment=environment, stall=1.0)


def in_folder(folder: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {f"{folder}/{name}": content for name, content in files.items()}


def test_an_images_layers_become_the_models_folder(registry: Registry, stub: WebStub, root: Path) -> None:
    base = tar(
        {"usr/bin/python3": b"elf", "etc/os.json": b"{}"}, link("bin", "/usr/bin"), link("etc/x.json", "/proc/x.json")
    )
    weights = zstandard.compress(tar(in_folder("models", {"model.safetensors": WEIGHTS, "modeling.py": b"import os"})))
    texts = gzip.compress(tar(in_folder("./models", {"config.json": CONFIG, "tokenizer.json": b"old"})))
    newer = tar(in_folder("models", {"tokenizer.json": MODEL["tokenizer.json"]}))
    image = registry.push(
        "v1", [(base, TAR, {}), (weights, f"{TAR}+zstd", {}), (texts, f"{TAR}+gzip", {}), (newer, TAR, {})]
    )
    done = pulled(stub, root)
    assert done.problem is None
    assert there(root / "model") == MODEL
    assert done.manifest is not None
    assert done.manifest.commit == image


def test_an_artifacts_layers_are_files_by_their_titles(registry: Registry, stub: WebStub, root: Path) -> None:
    raw, title = "application/octet-stream", "org.opencontainers.image.title"
    registry.push("v1", [(content, raw, {title: name}) for name, content in MODEL.items()])
    assert pulled(stub, root).problem is None
    assert there(root / "model") == MODEL


def test_a_layer_deletes_what_is_below_it(registry: Registry, stub: WebStub, root: Path) -> None:
    first = tar({**in_folder("m", MODEL), "old/model.safetensors": b"x", "m/vocab.txt": b"x"})
    second = tar({"m/.wh.vocab.txt": b"", "old/.wh..wh..opq": b""})
    registry.push("v1", [(first, TAR, {}), (second, TAR, {})])
    assert pulled(stub, root).problem is None
    assert there(root / "model") == MODEL


def test_of_an_index_the_manifest_for_this_machine_is_taken(registry: Registry, stub: WebStub, root: Path) -> None:
    child = registry.push("amd64", [(tar(MODEL), TAR, {})])
    platforms = [
        ("unknown", "unknown", digest(b"attestation")),
        ("linux", "amd64", child),
        ("linux", "s390x", digest(b"?")),
    ]
    entries = [{"digest": name, "platform": {"os": os, "architecture": cpu}} for os, cpu, name in platforms]
    index = registry.put("v1", {"mediaType": INDEX, "manifests": entries})
    done = pulled(stub, root)
    assert done.problem is None
    assert done.manifest is not None
    assert done.manifest.commit == index
    registry.put("v2", {"mediaType": INDEX, "manifests": entries[:1]})
    assert pulled(stub, root.with_name("other"), ":v2").reason is Reason.NotFound


def test_a_registry_that_wants_a_login_gets_the_secrets_and_its_blobs_other_host_gets_nothing(root: Path) -> None:
    private, other = Registry(LOGIN), Script()
    image = private.push("v1", [(tar(MODEL), TAR, {})])
    with WebStub(private, Reply).serving() as stub, other.serving() as elsewhere:
        private.elsewhere = elsewhere.url
        for name, content in private.blobs.items():
            other.answers[f"/{name}"] = lambda asked, content=content: part(content, asked)
        word = base64.b64encode(":".join(LOGIN).encode()).decode()
        secret = {".dockerconfigjson": json.dumps({"auths": {host(stub): {"auth": word}}})}
        assert pulled(stub, root).reason is Reason.Unauthorized
        wrong = {".dockerconfigjson": json.dumps({"auths": {host(stub): {"username": "a", "password": "hunter2"}}})}
        refused = pulled(stub, root, environment=wrong)
        assert refused.reason is Reason.Unauthorized
        assert refused.problem is not None
        assert "hunter2" not in refused.problem.message
        assert pulled(stub, root, f"@{image}", secret).problem is None
    assert there(root / "model") == MODEL
    assert [asked.headers.get("authorization") for asked in other.asked] == [None]


def test_another_host_that_asks_for_a_login_does_not_get_the_secret(root: Path) -> None:
    private, other = Registry(LOGIN), Script()
    image = private.push("v1", [(tar(MODEL), TAR, {})])
    with WebStub(private, Reply).serving() as stub, other.serving() as elsewhere:
        private.elsewhere = elsewhere.url
        challenge = Reply(401, {"WWW-Authenticate": f'Bearer realm="{elsewhere.url}/token"'})
        for name in private.blobs:
            other.answers[f"/{name}"] = challenge
        word = base64.b64encode(":".join(LOGIN).encode()).decode()
        secret = {
            ".dockerconfigjson": json.dumps({"auths": {host(stub): {"auth": word}}}),
            "OCI_PLAIN_HTTP": host(stub),
        }
        assert pulled(stub, root, f"@{image}", secret).reason is Reason.Unauthorized
    assert {asked.path for asked in other.asked} == {f"/{name}" for name in private.blobs}
    assert {asked.headers.get("authorization") for asked in other.asked} == {None}


@pytest.mark.parametrize("text", ["", "x", "[]", '{"auths": 3}', '{"auths": {"HOST": {"auth": "!"}}}', "[" * 100_000])
def test_a_malformed_docker_secret_is_named(registry: Registry, stub: WebStub, root: Path, text: str) -> None:
    registry.push("v1", [(tar(MODEL), TAR, {})])
    done = pulled(stub, root, environment={".dockerconfigjson": text.replace("HOST", host(stub))})
    assert done.reason is (Reason.Unauthorized if text else None)


def test_a_manifest_or_a_blob_of_another_digest_is_refused(registry: Registry, stub: WebStub, root: Path) -> None:
    content = tar(MODEL)
    image = registry.push("v1", [(content, TAR, {})])
    registry.blobs[digest(content)] = content[:-1] + b"x"
    assert pulled(stub, root).reason is Reason.ChecksumMismatch
    registry.manifests[image] = registry.manifests[image] + b" "
    assert pulled(stub, root, f"@{image}").reason is Reason.ChecksumMismatch
    assert there(root / "model") == {}


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        ({"digest": "sha256:../../x"}, Reason.BadArchive),
        ({"digest": 3}, Reason.BadArchive),
        ({"size": -1}, Reason.BadArchive),
        ({"mediaType": "application/x-unknown"}, Reason.BadArchive),
        ({"mediaType": "x/raw", "annotations": {"org.opencontainers.image.title": "../../x.json"}}, Reason.BadArchive),
        ({"annotations": [1]}, Reason.BadArchive),
    ],
)
def test_a_malformed_layer_is_refused(
    registry: Registry, stub: WebStub, root: Path, layer: dict[str, object], reason: Reason
) -> None:
    whole = {"digest": digest(b""), "size": 0, "mediaType": TAR, "annotations": {}}
    registry.put("v1", {"layers": [{**whole, **layer}]})
    assert pulled(stub, root).reason is reason


@pytest.mark.parametrize("manifest", [[], {}, {"layers": []}, {"layers": "x"}, {"layers": [{}] * 5000}, 3])
def test_a_malformed_manifest_is_refused(registry: Registry, stub: WebStub, root: Path, manifest: object) -> None:
    registry.put("v1", manifest)
    assert pulled(stub, root).reason in (Reason.ServerError, Reason.NoWeights, Reason.BadArchive)


def test_what_is_not_in_the_registry_is_not_found(stub: WebStub, root: Path) -> None:
    assert pulled(stub, root, ":gone").reason is Reason.NotFound
