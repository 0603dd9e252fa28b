"""s3:// against the stub, gs:// and az:// at the HTTP boundary: the endpoint, the requests and the credentials."""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from graphpod_sources.credentials import Credentials
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.stores import objects as object_stores
from graphpod_sources.stores.allowed_hosts import AllowedHosts
from graphpod_sources.stores.objects import Objects
from graphpod_sources.uri import Scheme, parse
from stubs import s3
from stubs.faults.fault import Answer, Cut, Fault, Freeze, Turn
from stubs.signature import Key
from stubs.web import Asked, Reply, WebStub, Where
from tests.unit.sources.fetching import MODEL, Fetched, Script, put, there
from tests.unit.sources.registry import part

KEY = Key("reader", "not a secret")
TOTAL = sum(map(len, MODEL.values()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put(tmp_path / "served/models/team/tiny", MODEL | {"x.bin": b"pickle", "code.py": b"x"})
    put(tmp_path / "served/models/team/tiny2", {"config.json": b"another"})
    return tmp_path / "served"


@pytest.fixture
def storage(folder: Path) -> Iterator[WebStub]:
    with s3.serve(folder, KEY, page=2).serving() as stub:
        yield stub


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def environment(storage: WebStub, key: Key | None = KEY) -> dict[str, str]:
    named = {"AWS_ACCESS_KEY_ID": key.id, "AWS_SECRET_ACCESS_KEY": key.secret} if key else {}
    return {"AWS_ENDPOINT_URL": storage.url, **named}


def fetched(storage: WebStub, root: Path, uri: str = "s3://models/team/tiny", stall: float = 20.0) -> Fetched:
    return Fetched(uri, root, environment=environment(storage), stall=stall)


def test_a_prefix_of_a_bucket_becomes_the_models_folder(storage: WebStub, root: Path) -> None:
    done = fetched(storage, root)
    assert done.problem is None
    assert there(root / "model") == MODEL
    assert not any("x.bin" in path or "code.py" in path or "tiny2/" in path for path in storage.counts())
    assert done.manifest is not None
    assert done.manifest.commit.startswith("sha256:")


def test_the_commit_changes_with_an_object(storage: WebStub, folder: Path, root: Path) -> None:
    first = fetched(storage, root)
    put(folder / "models/team/tiny", {"tokenizer.json": b"{}"})
    second = fetched(storage, root.with_name("other"))
    assert first.manifest is not None
    assert second.manifest is not None
    assert first.manifest.commit != second.manifest.commit


@pytest.mark.parametrize(
    ("uri", "reason"), [("s3://models/none", Reason.NotFound), ("s3://no-bucket/x", Reason.NotFound)]
)
def test_what_is_not_there_is_not_found(storage: WebStub, root: Path, uri: str, reason: Reason) -> None:
    assert fetched(storage, root, uri).reason is reason


def test_wrong_or_missing_credentials_are_named_without_showing_them(storage: WebStub, root: Path) -> None:
    for key in (None, Key("reader", "wrong word"), Key("nobody", "wrong word")):
        done = Fetched("s3://models/team/tiny", root, environment=environment(storage, key))
        assert done.reason is Reason.Unauthorized
        assert done.problem is not None
        assert "wrong word" not in done.problem.message
        assert "spec.model.secretRef" in done.problem.message


def test_a_public_bucket_needs_no_credentials(folder: Path, root: Path) -> None:
    with s3.serve(folder).serving() as public:
        assert Fetched("s3://models/team/tiny", root, environment={"AWS_ENDPOINT_URL": public.url}).problem is None


def test_an_object_that_is_gone_after_the_listing_is_not_found(storage: WebStub, root: Path) -> None:
    storage.board.add(Fault(Answer(404), Where(path=".safetensors")))
    assert fetched(storage, root).reason is Reason.NotFound


@pytest.mark.parametrize(
    ("effect", "reason"),
    [(Answer(503), Reason.RateLimited), (Answer(500), Reason.ServerError), (Freeze(), Reason.Stalled)],
)
def test_patience_ends_with_the_stall_deadline(
    storage: WebStub, root: Path, effect: Answer | Freeze, reason: Reason
) -> None:
    storage.board.add(Fault(effect, Where(path=".safetensors")))
    done = fetched(storage, root, stall=0.5)
    assert done.reason is reason
    assert done.problem is not None
    assert done.problem.retry
    storage.board.clear()
    assert fetched(storage, root).problem is None


def test_a_cut_connection_is_resumed_where_it_ended(storage: WebStub, root: Path) -> None:
    storage.board.add(Fault(Cut(after_bytes=2_000_000), Where(path=".safetensors"), Turn(times=1)))
    done = fetched(storage, root)
    assert done.problem is None
    assert there(root / "model") == MODEL
    assert done.progress.received < TOTAL + (1 << 20), "at most one chunk of the client came twice"


@pytest.mark.parametrize("content", [b"", b"shorter", b"x" * len(MODEL["tokenizer.json"]), b"longer" * 100])
def test_an_object_that_is_replaced_after_the_listing_has_changed(
    storage: WebStub, folder: Path, content: bytes
) -> None:
    source = Objects(parse("s3://models/team/tiny"), Credentials(environment(storage)), 5.0)
    file = next(file for file in source.listing().files if file.path == "tokenizer.json")
    assert b"".join(map(bytes, source.read(file, 0, None))) == MODEL["tokenizer.json"]
    put(folder / "models/team/tiny", {"tokenizer.json": content})
    os.utime(folder / "models/team/tiny/tokenizer.json", (1, 1))
    with pytest.raises(Problem) as caught:
        list(source.read(file, 0, None))
    assert caught.value.reason in (Reason.ChangedUnderUs, Reason.ServerError)


def test_google_is_asked_at_its_endpoint_with_the_account_of_the_secret(folder: Path, root: Path) -> None:
    """Its XML API lists and reads as S3's does. `disable_oauth` is the library's, for stand-ins."""
    account = {"gcs_base_url": "", "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    with s3.serve(folder).serving() as stub:
        secret = {"GOOGLE_SERVICE_ACCOUNT": json.dumps({**account, "gcs_base_url": stub.url})}
        done = Fetched("gs://models/team/tiny", root, environment=secret)
        assert done.problem is None
        assert there(root / "model") == MODEL
        public = Fetched("gs://models/team/tiny", root, name="public", environment={"GOOGLE_BASE_URL": stub.url})
        assert public.problem is None
        gone = Fetched("gs://none/x", root, name="none", environment={"GOOGLE_BASE_URL": stub.url})
        assert gone.reason is Reason.NotFound


@pytest.mark.parametrize("account", ["{", "{}", '{"client_email": 3}', "/no/such/file"])
def test_a_malformed_google_account_is_named(root: Path, account: str) -> None:
    done = Fetched("gs://models/x", root, environment={"GOOGLE_SERVICE_ACCOUNT": account}, stall=0.5)
    assert done.reason is Reason.Unauthorized


class Azure:
    """The part of a blob service that is read: a list in XML, and blobs with ranges."""

    def __init__(self, blobs: dict[str, bytes]) -> None:
        self._blobs = blobs

    def __call__(self, asked: Asked) -> Reply:
        if "comp=list" in asked.query:
            return self._list()
        content = self._blobs.get(asked.path.removeprefix("/account/models/").removeprefix("/models/"))
        if content is None:
            return Reply(404, {"x-ms-error-code": "BlobNotFound"})
        reply = part(content, asked)
        stamp = {"ETag": f'"{hashlib.md5(content).hexdigest()}"', "Last-Modified": "Thu, 26 Nov 2026 07:00:00 GMT"}
        return Reply(reply.status, {**reply.headers, **stamp}, reply.body)

    def _list(self) -> Reply:
        root = ElementTree.Element("EnumerationResults")
        blobs = ElementTree.SubElement(root, "Blobs")
        for name, content in self._blobs.items():
            blob = ElementTree.SubElement(blobs, "Blob")
            ElementTree.SubElement(blob, "Name").text = name
            about = ElementTree.SubElement(blob, "Properties")
            ElementTree.SubElement(about, "Last-Modified").text = "Thu, 26 Nov 2026 07:00:00 GMT"
            ElementTree.SubElement(about, "Content-Length").text = str(len(content))
            ElementTree.SubElement(about, "Content-Type").text = "application/octet-stream"
            ElementTree.SubElement(about, "Etag").text = f'"{hashlib.md5(content).hexdigest()}"'
        ElementTree.SubElement(root, "NextMarker")
        return Reply(200, {"Content-Type": "application/xml"}, ElementTree.tostring(root, xml_declaration=True))


def test_azure_is_asked_at_its_endpoint_with_the_key_of_the_secret(root: Path) -> None:
    script = Script(Azure({f"tiny/{name}": content for name, content in MODEL.items()}))
    with script.serving() as stub:
        secret = {
            "AZURE_STORAGE_ACCOUNT_NAME": "account",
            "AZURE_STORAGE_ACCOUNT_KEY": "c2VjcmV0",
            "AZURE_STORAGE_ENDPOINT": stub.url,
        }
        done = Fetched("az://models/tiny", root, environment=secret)
        assert done.problem is None
        assert there(root / "model") == MODEL
        assert {asked.headers["authorization"].split(":")[0] for asked in script.asked} == {"SharedKey account"}
        script.asked.clear()
        del secret["AZURE_STORAGE_ACCOUNT_KEY"]
        token = {"AZURE_STORAGE_SAS_TOKEN": "sv=2020&sig=abc"}
        assert Fetched("az://models/tiny", root, name="sas", environment={**secret, **token}).problem is None
        assert all("sig=abc" in asked.query for asked in script.asked)


def test_azure_without_an_account_says_which_keys_it_needs(root: Path) -> None:
    done = Fetched("az://models/tiny", root)
    assert done.reason is Reason.Unauthorized
    assert done.problem is not None
    assert "AZURE_STORAGE_ACCOUNT_NAME" in done.problem.message


@pytest.mark.parametrize("name", ["model-2.safetensors", "tokenizer.json"])
def test_a_named_pipe_among_the_files_of_a_folder_is_refused(tmp_path: Path, root: Path, name: str) -> None:
    source = put(tmp_path / "mine", MODEL)
    (source / name).unlink(missing_ok=True)
    os.mkfifo(source / name)
    done = Fetched(f"file://{source}", root)
    assert done.reason is Reason.BadArchive
    assert done.problem is not None
    assert f"{name}' is no regular file" in done.problem.what


def test_named_pipes_that_are_of_no_model_are_left(tmp_path: Path, root: Path) -> None:
    source = put(tmp_path / "mine", MODEL)
    os.mkfifo(source / "control")
    assert Fetched(f"file://{source}", root).problem is None


def test_a_folder_of_this_machine_is_copied(tmp_path: Path, root: Path) -> None:
    source = put(tmp_path / "mine", MODEL | {".git/config": b"x", "x.bin": b"x"})
    (source / "merges.txt").symlink_to(source / "tokenizer.json")
    done = Fetched(f"file://{source}", root)
    assert done.problem is None
    assert there(root / "model") == MODEL | {"merges.txt": MODEL["tokenizer.json"]}
    assert Fetched("file:///no/such/folder", root, name="none").reason is Reason.NotFound


def test_a_store_that_ignores_ranges_says_so(folder: Path, root: Path) -> None:
    objects = s3.Storage(folder)

    def whole(asked: Asked) -> Reply:
        reply = objects.answer(asked)
        return reply if reply.file is None else Reply(200, reply.headers, reply.file.read_bytes())

    with WebStub(whole, s3.refusal).serving() as stub:
        done = fetched(stub, root)
    assert done.reason is Reason.NoRanges
    assert done.problem is not None
    assert "answers with whole objects" in done.problem.message
    assert "answers range requests with 206" in done.problem.message


@pytest.mark.parametrize("at", ["?list", ".safetensors"])
def test_a_redirect_to_another_host_is_not_followed_and_takes_no_token_there(
    folder: Path, root: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """The library would send it the session token."""
    for name in ("HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    objects = s3.Storage(folder)
    with s3.serve(folder).serving() as other:

        def answer(asked: Asked) -> Reply:
            leads = asked.path.endswith(at) or (at == "?list" and "prefix" in asked.query)
            there = f"{other.url}{asked.raw_path}?{asked.query}"
            return Reply(307, {"Location": there}) if leads else objects.answer(asked)

        with WebStub(answer, s3.refusal).serving() as stub:
            endpoint = {"AWS_ENDPOINT_URL": stub.url.replace("127.0.0.1", "localhost"), "AWS_SESSION_TOKEN": "token"}
            done = Fetched("s3://models/team/tiny", root, environment=environment(stub) | endpoint)
        assert other.counts() == {}
    assert done.reason is Reason.HostNotAllowed
    assert done.problem is not None
    assert "redirects to '127.0.0.1', and the credentials are for localhost alone" in done.problem.message


def test_a_redirect_within_the_endpoints_host_is_followed(folder: Path, root: Path) -> None:
    with s3.serve(folder).serving() as other:

        def moved(asked: Asked) -> Reply:
            return Reply(307, {"Location": f"{other.url}{asked.raw_path}?{asked.query}"})

        with WebStub(moved, s3.refusal).serving() as stub:
            assert fetched(stub, root).problem is None
    assert there(root / "model") == MODEL


@pytest.mark.parametrize(
    ("scheme", "given", "endpoint", "logins"),
    [
        (
            Scheme.Google,
            {"GOOGLE_APPLICATION_CREDENTIALS": "/account.json"},
            "https://storage.googleapis.com",
            {"https://accounts.google.com", "http://metadata.google.internal"},
        ),
        (
            Scheme.Google,
            {"GOOGLE_APPLICATION_CREDENTIALS": "/account.json", "GCE_METADATA_HOST": "metadata.example:8080"},
            "https://storage.googleapis.com",
            {"http://metadata.example:8080"},
        ),
        (
            Scheme.S3,
            {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token", "AWS_REGION": "eu-west-1", "AWS_METADATA_ENDPOINT": "http://[fd00:ec2::254]"},
            "https://s3.eu-west-1.amazonaws.com",
            {"https://sts.eu-west-1.amazonaws.com", "http://[fd00:ec2::254]"},
        ),
    ],
)  # fmt: skip
def test_the_guard_lets_the_library_log_in_where_it_does(
    scheme: Scheme, given: dict[str, str], endpoint: str, logins: set[str]
) -> None:
    """The hosts are constants of the library, which has no setting for them: a user's login is at accounts.google.com,
    whatever the account's file says."""
    found = set(object_stores._logins(scheme, Credentials(given), endpoint))
    assert found >= logins | {"http://169.254.169.254"}
    assert not list(object_stores._logins(scheme, Credentials({}), endpoint))


@pytest.mark.parametrize(
    ("login", "allows"),
    [
        ("https://sts.eu-west-1.amazonaws.com", True),
        ("http://169.254.170.23/v1/credentials", True),
        ("http://[fd00:ec2::23]/v1/credentials", True),
        ("https://sts.mirror.example", True),
        ("https://elsewhere.example", False),
        ("https://169.254.169.254.example", False),
    ],
)
def test_a_login_that_a_variable_names_needs_the_installers_word(login: str, allows: bool) -> None:
    """A service's variables would take the pod's token anywhere; the cloud's own places need no entry."""
    given = {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token", "AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL_STS": login}
    allowed = AllowedHosts(("s3.eu-west-1.amazonaws.com", "*.mirror.example"))
    if allows:
        assert Objects(parse("s3://models/tiny"), Credentials(given), 5.0, allowed)
        return
    with pytest.raises(Problem) as refused:
        Objects(parse("s3://models/tiny"), Credentials(given), 5.0, allowed)
    assert refused.value.reason is Reason.HostNotAllowed


def test_behind_a_proxy_the_store_is_reached_through_it_and_no_redirect_is(
    folder: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, asked = s3.Storage(folder), list[Asked]()

    def through(one: Asked) -> Reply:
        asked.append(one)
        return objects.answer(one)

    with WebStub(through, s3.refusal).serving() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//user:pass@"))
        monkeypatch.setenv("no_proxy", "")
        given = {"AWS_ENDPOINT_URL": "http://store.example"}
        assert Fetched("s3://models/team/tiny", root, environment=given).problem is None
        assert there(root / "model") == MODEL
        assert {one.headers["host"] for one in asked} == {"store.example"}
        assert {one.headers["proxy-authorization"] for one in asked} == {"Basic dXNlcjpwYXNz"}
    lead = Script(lambda one: Reply(307, {"Location": f"http://other.example{one.raw_path}"}))
    with lead.serving() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        done = Fetched("s3://models/team/tiny", root.with_name("other"), environment=given)
    assert done.reason is Reason.HostNotAllowed
    assert {one.headers["host"] for one in lead.asked} == {"store.example"}
