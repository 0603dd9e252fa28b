"""Sources behind an authority that only SSL_CERT_FILE names."""

import subprocess
from pathlib import Path

import pytest

from graphpod_sources.problem import Reason
from stubs.hub import Hub
from stubs.hub import refusal as hub_refusal
from stubs.s3 import Storage
from stubs.s3 import refusal as s3_refusal
from stubs.web import Program, Refusal, WebStub
from tests.unit.sources.fetching import CONFIG, Fetched, put, there

FILES = {"config.json": CONFIG, "model.safetensors": b"weights"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority (`ca.crt`) and a certificate of it for 127.0.0.1 with its key (`tls.pem`)."""
    folder = tmp_path_factory.mktemp("authority")
    put(folder, {"request.cnf": b"[req]\ndistinguished_name = dn\n[dn]\n[leaf]\nsubjectAltName = IP:127.0.0.1\n"})
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-config", "request.cnf")
    for words in (
        (
            "req",
            "-x509",
            *key,
            "-subj",
            "/CN=authority",
            "-keyout",
            "ca.key",
            "-out",
            "ca.crt",
            "-addext",
            "basicConstraints=CA:TRUE",
        ),
        ("req", *key, "-subj", "/CN=leaf", "-keyout", "leaf.key", "-out", "leaf.csr"),
        *[
            (
                "x509",
                "-req",
                "-in",
                "leaf.csr",
                "-CA",
                "ca.crt",
                "-CAkey",
                "ca.key",
                "-CAcreateserial",
                "-extfile",
                "request.cnf",
                "-extensions",
                "leaf",
                "-out",
                "leaf.crt",
            )
        ],
    ):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=30)
    put(folder, {"tls.pem": (folder / "leaf.crt").read_bytes() + (folder / "leaf.key").read_bytes()})
    return folder


def serving(program: Program, refusal: Refusal, authority: Path) -> WebStub:
    return WebStub(program, refusal, tls=authority / "tls.pem")


@pytest.mark.parametrize("known", [False, True])
def test_a_bucket_behind_an_own_authority(tmp_path: Path, authority: Path, known: bool) -> None:
    put(tmp_path / "served/models/tiny", FILES)
    with serving(Storage(tmp_path / "served").answer, s3_refusal, authority).serving() as stub:
        named = {"SSL_CERT_FILE": str(authority / "ca.crt")} if known else {}
        done = Fetched(
            "s3://models/tiny", tmp_path / "cache", environment={"AWS_ENDPOINT_URL": stub.url, **named}, stall=0.5
        )
    assert done.reason is (None if known else Reason.Unreachable)


def test_a_hub_behind_an_own_authority(tmp_path: Path, authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "served/org/tiny/main", {"config.json": CONFIG})
    with serving(Hub(tmp_path / "served").answer, hub_refusal, authority).serving() as stub:
        unknown = Fetched("hf://org/tiny", tmp_path / "cache", environment={"HF_ENDPOINT": stub.url}, stall=0.5)
        assert unknown.problem is not None
        assert "SSL_CERT_FILE" in unknown.problem.message
        monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.crt"))
        known = Fetched("hf://org/tiny", tmp_path / "cache", environment={"HF_ENDPOINT": stub.url}, stall=1.0)
        assert known.reason is Reason.NoWeights, "its list was read"
    assert there(tmp_path / "cache/model") == {}


def test_an_authority_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = Fetched("s3://models/tiny", tmp_path / "cache", environment={"SSL_CERT_FILE": "/no/such/file"})
    assert done.problem is not None
    assert "/no/such/file" in done.problem.message
