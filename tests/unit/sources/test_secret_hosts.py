"""Where a Secret may be sent, and the hosts that a download may connect to."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from graphpod_sources.credentials import Credentials
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.stores.allowed_hosts import AllowedHosts
from graphpod_sources.stores.choice import check_authorities, source_of
from graphpod_sources.stores.http_client import Http
from graphpod_sources.stores.https_file import Web
from graphpod_sources.uri import parse
from stubs.web import Reply
from tests.unit.sources.fetching import Fetched, Script

DIGEST = "0" * 64
DOCKER = {".dockerconfigjson": '{"auths": {"reg.example": {"username": "a", "password": "b"}}}'}
KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
ACCOUNT = "AZURE_STORAGE_ACCOUNT_NAME"
SAS = {"AZURE_STORAGE_SAS_TOKEN": "sv=2020&sig=abc"}
MINE, THEIRS = "https://mirror.example", "https://evil.example"


def opened(uri: str, secret: Mapping[str, str], variables: Mapping[str, str]) -> Reason | None:
    """Why the source is refused before anything is sent; None where it is not."""
    sha256 = DIGEST if uri.startswith("https://") else None
    try:
        source_of(parse(uri), Credentials({**variables, **secret}, frozenset(secret)), sha256, 1.0)
    except Problem as problem:
        return problem.reason
    return None


@pytest.mark.parametrize(
    ("uri", "secret", "variables"),
    [
        ("hf://a/b", {"HF_TOKEN": "hf_x"}, {}),
        ("hf://a/b", {"HF_TOKEN": "hf_x", "hosts": "mirror.example"}, {"HF_ENDPOINT": MINE}),
        ("hf://a/b", {"HF_TOKEN": "hf_x", "HF_ENDPOINT": "http://hub.team.svc"}, {}),
        ("hf://a/b", {"token": "hf_x", "hosts": "huggingface.co"}, {}),
        ("hf://a/b", {"HF_TOKEN": "hf_x", "hosts": "a.b,\n http://hub.svc:8080"}, {"HF_ENDPOINT": "http://hub.svc:8080"}),
        ("hf://a/b", {}, {"HF_ENDPOINT": THEIRS, "HF_TOKEN": "the-callers-own"}),
        ("https://files.mirror.example/x.tar", {"token": "x", "hosts": "*.MIRROR.example"}, {}),
        ("https://files.example:8443/x.tar", {"token": "x", "hosts": "files.example:8443"}, {}),
        ("https://files.example/x.tar", {"HF_TOKEN": "x"}, {}),
        ("s3://models/x", KEYS, {"AWS_REGION": "eu-west-1"}),
        ("s3://models/x", KEYS, {"AWS_ENDPOINT_URL": "https://s3.dualstack.us-gov-east-1.amazonaws.com"}),
        ("s3://models/x", {**KEYS, "AWS_ENDPOINT_URL": "http://minio.team.svc:9000"}, {}),
        ("s3://models/x", {**KEYS, "hosts": "http://minio:9000"}, {"AWS_ENDPOINT_URL": "http://minio:9000"}),
        ("az://models/x", {ACCOUNT: "mine", **SAS}, {}),
        ("az://models/x", {**SAS, "hosts": "mine.blob.core.windows.net"}, {ACCOUNT: "mine"}),
        ("az://models/x", {}, {ACCOUNT: "theirs"}),
        ("oci://reg.example/a:b", DOCKER, {}),
        ("oci://reg.example/a:b", {**DOCKER, "hosts": "http://reg.example"}, {"OCI_PLAIN_HTTP": "reg.example"}),
        ("oci://other.example/a:b", DOCKER, {"OCI_PLAIN_HTTP": "other.example"}),
    ],
)  # fmt: skip
def test_a_secret_goes_to_its_services_own_hosts_and_where_it_says(
    uri: str, secret: Mapping[str, str], variables: Mapping[str, str]
) -> None:
    assert opened(uri, secret, variables) is None


@pytest.mark.parametrize(
    ("uri", "secret", "variables"),
    [
        ("https://evil.example/x.tar", {"token": "of somebody else"}, {}),
        ("https://evil.example/x.tar", {"token": "x", "hosts": "mirror.example, example"}, {}),
        ("https://evil.example:8443/x.tar", {"token": "x", "hosts": "evil.example"}, {}),
        ("https://evilmirror.example/x.tar", {"token": "x", "hosts": "*.mirror.example mirror.example"}, {}),
        ("hf://a/b", {"token": "x"}, {}),
        ("hf://a/b", {"HF_TOKEN": "x"}, {"HF_ENDPOINT": THEIRS}),
        ("hf://a/b", {"HF_TOKEN": "x"}, {"HF_ENDPOINT": "http://huggingface.co"}),
        ("hf://a/b", {"HF_TOKEN": "x"}, {"HF_ENDPOINT": "https://huggingface.co:8443"}),
        ("hf://a/b", {"HF_TOKEN": "x"}, {"HF_ENDPOINT": "https://huggingface.co@evil.example"}),
        ("hf://a/b", {"HF_TOKEN": "x", "hosts": "mirror.example"}, {"HF_ENDPOINT": "http://mirror.example"}),
        ("s3://models/x", KEYS, {"AWS_ENDPOINT_URL": THEIRS}),
        ("s3://models/x", KEYS, {"AWS_ENDPOINT_URL": "https://x.execute-api.us-east-1.amazonaws.com"}),
        ("s3://models/x", KEYS, {"AWS_ENDPOINT_URL": "https://s3.amazonaws.com@evil.example"}),
        ("s3://models/x", {**KEYS, "AWS_ENDPOINT_URL": MINE}, {"AWS_ENDPOINT_URL_S3": THEIRS}),
        ("gs://models/x", {"GOOGLE_SERVICE_ACCOUNT": "{}"}, {"GOOGLE_BASE_URL": THEIRS}),
        ("az://models/x", SAS, {ACCOUNT: "theirs"}),
        ("az://models/x", {ACCOUNT: "mine", **SAS}, {"AZURE_STORAGE_ENDPOINT": THEIRS}),
        ("oci://reg.example/a:b", DOCKER, {"OCI_PLAIN_HTTP": "reg.example"}),
    ],
)  # fmt: skip
def test_a_secret_goes_nowhere_else(uri: str, secret: Mapping[str, str], variables: Mapping[str, str]) -> None:
    assert opened(uri, secret, variables) is Reason.SecretNotForHost


def test_the_message_names_the_host_and_shows_nothing_of_the_secret() -> None:
    known = Credentials({"token": "hunter2", "hosts": "a.b", "HF_ENDPOINT": THEIRS}, frozenset({"token", "hosts"}))
    with pytest.raises(Problem) as refused:
        source_of(parse("hf://a/b"), known, None, 1.0)
    assert "adds evil.example to its key hosts" in refused.value.message
    assert "hunter2" not in refused.value.message


def test_a_proxy_reads_what_goes_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = {"HF_TOKEN": "x", "hosts": "http://hub.example"}
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    assert opened("hf://a/b", secret, {"HF_ENDPOINT": "http://hub.example"}) is Reason.SecretNotForHost
    secret["hosts"] += ", http://proxy.example:3128"
    assert opened("hf://a/b", secret, {"HF_ENDPOINT": "http://hub.example"}) is None


@pytest.mark.parametrize("hosts", ["https://", "a b/c", "*", "a.b:99999999", "http//a", ",".join(["a.b"] * 65)])
def test_a_list_of_hosts_that_cannot_be_read_is_named(hosts: str) -> None:
    secret = {"token": "x", "hosts": hosts}
    assert opened("https://a.b/x.tar", secret, {}) is Reason.Unauthorized


@pytest.mark.parametrize("name", ["AWS_REGION", ACCOUNT])
def test_a_region_and_an_account_are_parts_of_hosts_and_no_hosts_themselves(name: str) -> None:
    uri, reason = ("s3://models/x", Reason.BadUri) if name == "AWS_REGION" else ("az://models/x", Reason.Unauthorized)
    assert opened(uri, KEYS | SAS, {name: "x@evil.example/"}) is reason


@pytest.mark.parametrize("endpoint", ["https://evil.example\\@s3.amazonaws.com", "https://evil%2eexample", "https:/x"])
def test_an_endpoint_that_clients_read_differently_is_refused(endpoint: str) -> None:
    assert opened("s3://models/x", KEYS, {"AWS_ENDPOINT_URL": endpoint}) is Reason.BadUri


def test_authorities_in_the_cache_are_not_believed_with_a_secret(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "cache/model/ca.crt")
    for named in (tmp_path / "link", tmp_path / "cache/model/ca.crt"):
        values = {"SSL_CERT_FILE": str(named), "HF_TOKEN": "x"}
        check_authorities(Credentials(values), tmp_path / "cache")
        with pytest.raises(Problem, match=r"a file of the cache"):
            check_authorities(Credentials(values, frozenset({"HF_TOKEN"})), tmp_path / "cache")
    check_authorities(Credentials({"SSL_CERT_FILE": str(tmp_path / "ca.crt")}, frozenset({"a"})), tmp_path / "cache")


def test_redirects_stay_within_the_allowed_hosts(tmp_path: Path) -> None:
    first, second = Script(), Script()
    with first.serving() as stub, second.serving() as elsewhere:
        first.answers["/x.tar"] = Reply(302, {"Location": f"{elsewhere.url}/x.tar"})
        uri = parse("https://127.0.0.1/x.tar")
        here = type(uri)(f"{stub.url}/x.tar", uri.scheme, uri.place, uri.path)
        for entries in ((stub.url.partition("://")[2],), ("localhost",)):
            source = Web(here, Http(2.0, AllowedHosts(entries)), DIGEST, None)
            done = Fetched(here, tmp_path / "cache", source=source)
            assert done.reason is Reason.HostNotAllowed
            assert done.problem is not None
            assert entries[0] in done.problem.message
        assert second.asked == []
        open_source = Web(here, Http(2.0, AllowedHosts(("127.0.0.*",))), DIGEST, None)
        assert Fetched(here, tmp_path / "cache", source=open_source).reason is Reason.NotFound
    assert len(first.asked) == 2
    assert second.asked


def test_a_bucket_of_a_host_that_is_not_allowed_is_refused_before_a_request() -> None:
    known = Credentials({"AWS_ENDPOINT_URL": THEIRS})
    with pytest.raises(Problem, match=r"evil\.example:443 is not in allowed\.sourceHosts: \*\.amazonaws\.com"):
        source_of(parse("s3://models/x"), known, None, 1.0, AllowedHosts(("*.amazonaws.com",)))


def test_a_redirect_to_a_nodes_metadata_is_not_followed(tmp_path: Path) -> None:
    script = Script()
    with script.serving() as stub:
        script.answers["/x.tar"] = Reply(302, {"Location": "http://169.254.169.254/latest/meta-data/"})
        uri = parse("https://127.0.0.1/x.tar")
        here = type(uri)(f"{stub.url}/x.tar", uri.scheme, uri.place, uri.path)
        done = Fetched(here, tmp_path / "cache", source=Web(here, Http(2.0), DIGEST, None))
    assert done.reason is Reason.BadUri
