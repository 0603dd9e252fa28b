"""How clients come to the API port: HTTPS with a certificate that is renewed, pages of other origins, a prefix."""

import contextlib
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import openai
import pytest

from graphpod_policy import ExitCode
from graphpod_runtime.front.access.tls import Certificate, TlsInvalid
from stubs import certificate as stub

from .conftest import Front, engine_json, start_front, write_model

PAGE = "https://chat.example.com"


def issue(folder: Path, *names: str) -> stub.Certificate:
    """A certificate in the folder, by renames, as the kubelet brings a Secret."""
    made = stub.make(names or ("IP:127.0.0.1",))
    draft = folder.with_name(f"{folder.name}-draft")
    draft.mkdir(exist_ok=True)
    (draft / "tls.crt").write_bytes(made.certificate)
    (draft / "tls.key").write_bytes(made.key)
    folder.mkdir(exist_ok=True)
    for name in ("tls.crt", "tls.key"):
        (draft / name).rename(folder / name)
    return made


def trusting(*made: stub.Certificate) -> ssl.SSLContext:
    return ssl.create_default_context(cadata="\n".join(one.certificate.decode() for one in made))


def shown(front: Front) -> bytes:
    """The certificate that a new connection is shown, in PEM."""
    address = urlsplit(front.http)
    assert address.hostname
    return ssl.get_server_certificate((address.hostname, address.port or 0)).replace("\n", "").encode()


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Front, Path]]:
    """A front with HTTPS, and the folder of its certificate."""
    folder = tmp_path_factory.mktemp("tls-front")
    issue(folder / "tls")
    front = start_front(folder, environment={"GRAPHPOD_TLS_FOLDER": str(folder / "tls")})
    front.http = front.http.replace("http://", "https://")
    yield front, folder / "tls"
    front.process.terminate()
    assert front.ended() == 0, front.log.read_text()


def test_the_api_speaks_tls_and_the_probes_do_not(serving: tuple[Front, Path]) -> None:
    front, folder = serving
    made = issue(folder)
    client = httpx2.Client(verify=trusting(made))
    assert client.get(front.http + "/v1/models").json()["data"][0]["id"] == "echo"
    sdk = openai.OpenAI(base_url=f"{front.http}/v1", api_key="none", http_client=client, max_retries=0)
    stream = sdk.completions.create(model="echo", prompt="abc", stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "abc"
    assert front.get("/readyz").status_code == 200
    with pytest.raises(httpx2.TransportError):
        httpx2.get(front.http.replace("https", "http") + "/v1/models")
    assert client.get(front.http + "/v1/models").status_code == 200, "plain HTTP on the port hurts nobody else"


def test_a_renewed_certificate_is_shown_to_the_next_connection_and_open_ones_go_on(
    serving: tuple[Front, Path],
) -> None:
    front, folder = serving
    first = issue(folder)
    with httpx2.Client(verify=trusting(first)) as open_client:
        assert open_client.get(front.http + "/v1/models").status_code == 200
        second = issue(folder)
        assert shown(front) == second.certificate.replace(b"\n", b"")
        assert httpx2.get(front.http + "/v1/models", verify=trusting(second)).status_code == 200
        assert open_client.get(front.http + "/v1/models").status_code == 200, "its connection is as it was"
    with pytest.raises(httpx2.ConnectError), httpx2.Client(verify=trusting(first)) as late:
        late.get(front.http + "/v1/models")


def test_a_pair_that_does_not_fit_is_logged_and_the_earlier_one_goes_on(serving: tuple[Front, Path]) -> None:
    front, folder = serving
    good = issue(folder)
    assert shown(front) == good.certificate.replace(b"\n", b"")
    (folder / "tls.key").write_bytes(stub.make(["IP:127.0.0.1"]).key)
    assert shown(front) == good.certificate.replace(b"\n", b"")
    assert "no usable certificate (KEY_VALUES_MISMATCH)" in front.log.read_text()
    (folder / "tls.crt").unlink()
    assert httpx2.get(front.http + "/v1/models", verify=trusting(good)).status_code == 200
    assert "the certificate read before goes on" in front.log.read_text()
    renewed = issue(folder)
    assert shown(front) == renewed.certificate.replace(b"\n", b"")


def test_a_client_that_never_ends_its_handshake_holds_up_nobody(serving: tuple[Front, Path]) -> None:
    front, folder = serving
    made = issue(folder)
    address = urlsplit(front.http)
    with contextlib.ExitStack() as until:
        for number in range(200):
            silent = until.enter_context(socket.create_connection((address.hostname or "", address.port or 0)))
            silent.send(b"\x16\x03\x01" if number % 2 else b"GET / HTTP/1.1\r\n\r\n")
        assert httpx2.get(front.http + "/v1/models", verify=trusting(made)).status_code == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_in_use_are_spoken_and_earlier_ones_are_off(
    serving: tuple[Front, Path], version: ssl.TLSVersion
) -> None:
    front, folder = serving
    context = trusting(issue(folder))
    context.minimum_version = context.maximum_version = version
    assert httpx2.get(front.http + "/v1/models", verify=context).status_code == 200
    assert Certificate(folder).context.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("spoilt", ["nothing", "no key", "another key", "a locked key", "no PEM"])
def test_a_folder_without_a_usable_pair_is_refused_by_name_and_asks_nobody_for_a_password(
    tmp_path: Path, spoilt: str
) -> None:
    folder = tmp_path / "tls"
    issue(folder)
    match spoilt:
        case "nothing":
            shutil.rmtree(folder)
        case "no key":
            (folder / "tls.key").unlink()
        case "another key":
            (folder / "tls.key").write_bytes(stub.make(["IP:127.0.0.1"]).key)
        case "a locked key":
            words = ["openssl", "pkey", "-in", folder / "tls.key", "-aes128", "-passout", "pass:x"]
            locked = subprocess.run(words, check=True, capture_output=True).stdout
            (folder / "tls.key").write_bytes(locked)
        case _:
            (folder / "tls.crt").write_text("certificate")
    with pytest.raises(TlsInvalid, match=r"tls has no usable certificate \(.+\); it needs tls.crt and the tls.key"):
        Certificate(folder)


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A front for pages of one origin, behind a proxy that leaves a prefix, with a key."""
    folder = tmp_path_factory.mktemp("paged")
    (folder / "key").write_text("secret")
    options = {"cors_origins": [PAGE], "root_path": "/llm"}
    front = start_front(folder, options=options, api_key_file=folder / "key")
    yield front
    front.process.terminate()
    assert front.ended() == 0


def preflight(front: Front, origin: str, method: str = "POST") -> httpx2.Response:
    asked = {"access-control-request-method": method, "access-control-request-headers": "authorization,content-type"}
    return httpx2.options(front.http + "/v1/chat/completions", headers={"origin": origin, **asked})


def test_a_page_of_an_allowed_origin_uses_the_api_with_the_key_and_no_other_page_does(paged: Front) -> None:
    allowed = preflight(paged, PAGE)
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, PAGE)
    assert "authorization" in allowed.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in allowed.headers
    assert allowed.headers["x-request-id"].startswith("req-")
    other = preflight(paged, "https://evil.example.com")
    assert (other.status_code, other.headers.get("access-control-allow-origin")) == (400, None)
    assert preflight(paged, PAGE, "PUT").status_code == 400

    def models(**headers: str) -> httpx2.Response:
        return httpx2.get(paged.http + "/v1/models", headers=headers)

    answer = models(origin=PAGE, authorization="Bearer secret")
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, PAGE)
    shown = answer.headers["access-control-expose-headers"].split(", ")
    assert shown == ["x-request-id", "request-id", "x-ignored-fields", "retry-after", "endpoint-load-metrics"]
    assert models(origin=PAGE).headers["access-control-allow-origin"] == PAGE, "the page can read why it was refused"
    assert models(origin=PAGE).status_code == 401, "an origin is no key"
    assert "access-control-allow-origin" not in models(origin=PAGE + ".evil", authorization="Bearer secret").headers


def test_without_the_option_no_answer_allows_a_page(front: Front) -> None:
    answer = httpx2.get(front.http + "/v1/models", headers={"origin": PAGE})
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert preflight(front, PAGE).status_code == 405


def test_paths_answer_with_and_without_the_prefix_and_the_key_guards_both(paged: Front) -> None:
    key = {"authorization": "Bearer secret"}
    for path in ("/v1/models", "/llm/v1/models", "/llm/v1/models/", "/llm/version"):
        assert httpx2.get(paged.http + path, headers=key).status_code == 200
        assert httpx2.get(paged.http + path).status_code == 401
    assert httpx2.get(paged.http + "/llm/health").status_code == 200
    for path in ("/llmx/v1/models", "/llm", "/llm/llm/v1/models", "/x/v1/models"):
        assert httpx2.get(paged.http + path, headers=key).status_code == 404


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--cors-allow-origin", "https://a.example.com/", "is not an origin"),
        ("--cors-allow-origin", "chat.example.com", "is not an origin"),
        ("--cors-allow-origin", "null", "is not an origin"),
        ("--root-path", "llm", "is not a path"),
        ("--root-path", "/llm/", "is not a path"),
        ("--root-path", "/../x", "is not a path"),
        ("--otlp-endpoint", "otel:4317", "is not the base URL"),
        ("--otlp-endpoint", "grpc://otel:4317", "is not the base URL"),
        ("--trace-sampling-per-million", "1000001", "1000000"),
    ],
)
def test_an_option_with_a_wrong_value_is_refused_with_what_it_takes(option: str, value: str, words: str) -> None:
    command = [sys.executable, "-m", "graphpod_runtime.cli", "serve", "--model", "/nowhere", option, value]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert ended.returncode == 2
    assert option in ended.stderr
    assert words in ended.stderr


def test_a_folder_without_a_certificate_ends_the_start_with_its_name(tmp_path: Path) -> None:
    config = engine_json(tmp_path, write_model(tmp_path / "model"))
    ports = ("--host=127.0.0.1", "--http-port=0", "--admin-port=0")
    words = ["serve", f"--config={config}", f"--tls-folder={tmp_path / 'none'}", *ports]
    ended = subprocess.run(
        [sys.executable, "-m", "graphpod_runtime.cli", *words], capture_output=True, text=True, timeout=180
    )
    assert ended.returncode == ExitCode.SettingInvalid
    assert f"{tmp_path / 'none'} has no usable certificate" in ended.stderr
