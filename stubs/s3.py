"""Object storage that speaks S3, for reading: `python -m stubs.s3 --folder DIR [--key ID:SECRET]`.

The folder holds BUCKET/KEYS. Path-style addresses; GET and HEAD with ranges, ListObjectsV2 with prefix, delimiter and
pages. With a key every request must be signed by it (signature version 4), without one anybody may read. Standard
library only.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from urllib.parse import parse_qs
from xml.etree import ElementTree

from stubs import signature
from stubs.signature import Key
from stubs.web import Asked, Reply, WebStub, files, inside, parser, run, whole

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
PAGE = 1000
"""Most keys of one page, as S3's own."""
STATUS = {
    "AccessDenied": 403,
    "InvalidAccessKeyId": 403,
    "SignatureDoesNotMatch": 403,
    "NoSuchBucket": 404,
    "NoSuchKey": 404,
    "MethodNotAllowed": 405,
    "InternalError": 500,
    "SlowDown": 503,
}
"""HTTP status of an error code."""


class Storage:
    """The storage's answers from a folder. With a `key`, every request must be signed by it."""

    def __init__(self, folder: Path, key: Key | None = None, page: int = PAGE) -> None:
        self._folder, self._key, self._page = folder, key, page

    def answer(self, asked: Asked) -> Reply:
        if self._key is not None:
            code = signature.objection(self._key, asked.method, asked.raw_path, asked.query, asked.headers)
            if code is not None:
                return _no(code, asked.path)
        if asked.method not in ("GET", "HEAD"):
            return _no("MethodNotAllowed", asked.path)
        bucket, _, key = asked.path.lstrip("/").partition("/")
        place = inside(self._folder, bucket)
        if not bucket or place is None or not place.is_dir():
            return _no("NoSuchBucket", bucket)
        if not key:
            return self._list(place, parse_qs(asked.query)) if asked.method == "GET" else Reply(200)
        file = inside(place, key)
        if file is None or not file.is_file():
            return _no("NoSuchKey", key)
        changed = datetime.fromtimestamp(int(file.stat().st_mtime), UTC)
        headers = {"ETag": f'"{_md5(file)}"', "Last-Modified": format_datetime(changed, usegmt=True)}
        return whole(file, {**headers, "Content-Type": "binary/octet-stream"})

    def _list(self, place: Path, query: dict[str, list[str]]) -> Reply:
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        after = query.get("continuation-token", query.get("start-after", [""]))[0]
        most = min(self._page, int(query.get("max-keys", [str(PAGE)])[0]))
        keys = sorted(str(p.relative_to(place)) for p in place.rglob("*") if p.is_file())
        entries = list(islice((e for e in _entries(keys, prefix, delimiter) if e > after), most + 1))
        shown, more = entries[:most], len(entries) > most
        root = ElementTree.Element("ListBucketResult", xmlns=NAMESPACE)
        facts = {"Name": place.name, "Prefix": prefix, "Delimiter": delimiter, "MaxKeys": most, "KeyCount": len(shown)}
        facts |= {"IsTruncated": str(more).lower(), **({"NextContinuationToken": shown[-1]} if more else {})}
        _fill(root, facts)
        for entry in shown:
            if delimiter and entry.endswith(delimiter):
                _fill(ElementTree.SubElement(root, "CommonPrefixes"), {"Prefix": entry})
                continue
            state = (place / entry).stat()
            changed = datetime.fromtimestamp(state.st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
            about = {"Key": entry, "LastModified": changed, "ETag": f'"{_md5(place / entry)}"', "Size": state.st_size}
            _fill(ElementTree.SubElement(root, "Contents"), {**about, "StorageClass": "STANDARD"})
        return Reply(200, {"Content-Type": "application/xml"}, ElementTree.tostring(root, xml_declaration=True))


def _entries(keys: Sequence[str], prefix: str, delimiter: str) -> list[str]:
    """Keys below a prefix; with a delimiter, those that go on past it stand together under what they share."""
    found = [key for key in keys if key.startswith(prefix)]
    if not delimiter:
        return found
    cut = [(key, key.find(delimiter, len(prefix))) for key in found]
    return sorted({key if at < 0 else key[: at + len(delimiter)] for key, at in cut})


def refusal(status: int) -> Reply:
    """S3's no: the first error code of that status."""
    return _no(next((code for code, number in STATUS.items() if number == status), "InternalError"), "", status)


def _no(code: str, resource: str, status: int | None = None) -> Reply:
    root = ElementTree.Element("Error")
    _fill(root, {"Code": code, "Message": f"{code} from the storage", "Resource": resource, "RequestId": "0"})
    body = ElementTree.tostring(root, xml_declaration=True)
    return Reply(status or STATUS[code], {"Content-Type": "application/xml"}, body)


def _fill(parent: ElementTree.Element, facts: dict[str, object]) -> None:
    for name, value in facts.items():
        ElementTree.SubElement(parent, name).text = str(value)


def _md5(file: Path) -> str:
    state = file.stat()
    return _md5_of(file, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=4096)
def _md5_of(file: Path, _size: int, _modified: int) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def serve(
    folder: Path,
    key: Key | None = None,
    listen: tuple[str, int] = ("127.0.0.1", 0),
    control: tuple[str, int] = ("127.0.0.1", 0),
    page: int = PAGE,
) -> WebStub:
    """The storage over HTTP."""
    return WebStub(Storage(folder, key, page).answer, refusal, listen, control, files(folder))


def main(argv: Sequence[str]) -> int:
    words = parser("s3", "Object storage over a folder of BUCKET/KEYS.")
    words.add_argument("--key", metavar="ID:SECRET", help="the key that must have signed; without it anybody reads")
    words.add_argument("--folder", type=Path, required=True, help="what is served")
    args = words.parse_args(argv)
    identity, _, secret = (args.key or "").partition(":")
    key = Key(identity, secret) if args.key else None
    return run(serve(args.folder, key, (args.address, args.port), (args.address, args.control)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
