"""Object storage, read with a real client; its faults; its signatures, by the published example."""

import asyncio
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError, NotFoundError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from stubs import s3, signature
from stubs.faults.fault import Answer, Cut, Fault, Freeze, Point, Slow, Turn
from stubs.signature import Key
from stubs.web import Asked, WebStub, Where

KEY = Key("reader", "not a secret")
QUICK = {"init_backoff": timedelta(milliseconds=10), "max_backoff": timedelta(milliseconds=50), "base": 2}
WEIGHTS = os.urandom(300_000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in {"a/config.json": b"{}", "a/w ü.safetensors": WEIGHTS, "b/x": b"x", "top": b"t"}.items():
        file = tmp_path / "models" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return tmp_path


@pytest.fixture
def storage(folder: Path) -> Iterator[WebStub]:
    with s3.serve(folder, KEY, page=2).serving() as stub:
        yield stub


def client(storage: WebStub, key: Key | None = KEY, retries: int = 0, bucket: str = "models") -> S3Store:
    """A client of one bucket; by default one that takes no for an answer."""
    credentials: dict[str, Any] = {"skip_signature": True}
    if key is not None:
        credentials = {"access_key_id": key.id, "secret_access_key": key.secret}
    return S3Store(
        bucket,
        endpoint=storage.url,
        region="us-east-1",
        client_options={"allow_http": True, "timeout": timedelta(seconds=10)},
        retry_config={"max_retries": retries, "backoff": QUICK},
        **credentials,
    )


def test_a_client_lists_page_by_page_and_reads_what_is_there(storage: WebStub) -> None:
    store = client(storage)
    keys = [entry["path"] for page in obstore.list(store) for entry in page]
    assert sorted(keys) == ["a/config.json", "a/w ü.safetensors", "b/x", "top"]
    assert storage.counts()["GET /models"] == 2, "two pages of two"
    assert [entry["path"] for page in obstore.list(store, "b") for entry in page] == ["b/x"]
    assert obstore.list_with_delimiter(store)["common_prefixes"] == ["a", "b"]
    assert bytes(obstore.get(store, "a/w ü.safetensors").bytes()) == WEIGHTS
    assert obstore.head(store, "a/w ü.safetensors")["size"] == len(WEIGHTS)


def test_a_range_is_the_part_asked_for(storage: WebStub) -> None:
    store = client(storage)
    assert bytes(obstore.get_range(store, "a/w ü.safetensors", start=1000, end=1100)) == WEIGHTS[1000:1100]


def test_who_did_not_sign_with_the_key_is_refused(storage: WebStub) -> None:
    for key in (Key("reader", "guessed"), Key("stranger", KEY.secret), None):
        with pytest.raises((PermissionDeniedError, UnauthenticatedError)):
            obstore.get(client(storage, key), "top")


def test_without_a_key_anybody_reads(folder: Path) -> None:
    with s3.serve(folder).serving() as storage:
        assert bytes(obstore.get(client(storage, None), "top").bytes()) == b"t"


def test_what_is_not_there_is_said_to_be_missing(storage: WebStub) -> None:
    for store, path in ((client(storage), "a/none"), (client(storage, bucket="other"), "top")):
        with pytest.raises((NotFoundError, FileNotFoundError)):
            obstore.get(store, path)


def test_a_client_comes_back_after_slow_down(storage: WebStub) -> None:
    armed = storage.board.add(Fault(Answer(503), Where(path="top"), Turn(times=2)))
    assert bytes(obstore.get(client(storage, retries=3), "top").bytes()) == b"t"
    assert armed.hits == 2
    storage.board.add(Fault(Answer(503), Where(path="top")))
    with pytest.raises(GenericError, match="SlowDown"):
        obstore.get(client(storage), "top")


def test_a_cut_body_is_noticed_and_the_rest_is_asked_for(storage: WebStub) -> None:
    storage.board.add(Fault(Cut(after_bytes=100_000), Where(path="safetensors"), Turn(times=1)))
    assert bytes(obstore.get(client(storage, retries=2), "a/w ü.safetensors").bytes()) == WEIGHTS
    assert storage.counts()["GET /models/a/w ü.safetensors"] == 2


async def test_a_frozen_answer_and_a_slow_body_arrive_when_the_fault_is_lifted(storage: WebStub) -> None:
    store = client(storage)
    for effect in (Freeze(), Freeze(Point.Answer), Slow(delay=3600)):
        armed = storage.board.add(Fault(effect, Where(path="top")))
        answer = asyncio.ensure_future(obstore.get_async(store, "top"))
        await asyncio.to_thread(armed.reached)
        assert not answer.done()
        storage.board.lift(armed.number)
        assert bytes(await (await answer).bytes_async()) == b"t"
    slow = storage.board.add(Fault(Slow(bytes_per_second=1000), Where(path="safetensors")))
    body = await obstore.get_async(store, "a/w ü.safetensors")
    storage.board.lift(slow.number)
    assert bytes(await body.bytes_async()) == WEIGHTS


def test_nothing_outside_the_folder_is_served(folder: Path) -> None:
    (folder.parent / "private").write_text("x")
    for path in ("/models/../../private", "/../private", "/models/%2e%2e"):
        assert s3.Storage(folder).answer(Asked("GET", path)).status == 404


def test_the_signature_is_that_of_the_published_example() -> None:
    # AWS, "Signature Calculations for the Authorization Header": GET Object
    headers = {
        "host": "examplebucket.s3.amazonaws.com",
        "range": "bytes=0-9",
        "x-amz-content-sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "x-amz-date": "20130524T000000Z",
    }
    request = signature.canonical("GET", "/test.txt", "", headers, sorted(headers))
    secret, scope = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "20130524/us-east-1/s3/aws4_request"
    found = signature.sign(secret, scope, headers["x-amz-date"], request)
    assert found == "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
