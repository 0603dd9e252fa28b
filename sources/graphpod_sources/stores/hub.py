"""hf://: a hub in the manner of Hugging Face's. A revision becomes a commit first; every file is of that commit."""

import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from graphpod_sources.listing import MOST_FILES, Listing, RemoteFile
from graphpod_sources.names import safe, shown, whole
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.stores import ranges
from graphpod_sources.stores.http_client import Http, Reply, origin, refusal
from graphpod_sources.uri import ModelUri

ENDPOINT = "https://huggingface.co"
PAGES = 50
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_OID, _SHA256 = re.compile(r"[0-9a-f]{40}"), re.compile(r"[0-9a-f]{64}")
_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')


class Hub:
    """A repository of a hub. The token goes to the endpoint's host alone, never to where its redirects lead."""

    def __init__(self, uri: ModelUri, http: Http, endpoint: str, token: str | None) -> None:
        self._uri, self._http, self._endpoint = uri, http, endpoint.rstrip("/")
        self._token = token
        self._secret = {"Authorization": f"Bearer {token}"} if token else {}
        self._commit = uri.revision if _COMMIT.fullmatch(uri.revision) else ""
        self._locations: dict[str, str] = {}
        self._lock = threading.Lock()

    def listing(self) -> Listing:
        self._commit = self._resolve()
        files: list[RemoteFile] = []
        folder = f"/{quote(self._uri.folder)}" if self._uri.folder else ""
        url = f"{self._api}/tree/{self._commit}{folder}?recursive=true"
        for _ in range(PAGES):
            with self._http.get(url, secret=self._secret, judge=self._judge) as reply:
                page, link = reply.json(), _NEXT.search(reply.headers.get("link", ""))
            if not isinstance(page, list):
                raise Problem(Reason.ServerError, f"{self._where}: its list of files is no list")
            files.extend(self._file(entry) for entry in page if not _is_folder(entry))
            if len(files) > MOST_FILES:
                break
            if link is None:
                return Listing(self._commit, tuple(files))
            url = self._same_host(link[1])
        raise Problem(
            Reason.BadUri,
            f"{self._where}: lists more than {MOST_FILES} files",
            next_step="add the model's folder to spec.model.uri: hf://ORG/NAME@REVISION/FOLDER",
        )

    def _same_host(self, url: str) -> str:
        """The next page, which must be the endpoint's: the token goes there."""
        if origin(url) != origin(self._endpoint):
            raise Problem(Reason.ServerError, f"{self._where}: its list of files goes on at another host, {shown(url)}")
        return url

    def _resolve(self) -> str:
        url = f"{self._api}/revision/{quote(self._uri.revision, safe='')}"
        with self._http.get(url, secret=self._secret, judge=self._judge) as reply:
            answer = reply.json()
        commit = answer.get("sha") if isinstance(answer, Mapping) else None
        if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
            raise Problem(Reason.ServerError, f"{self._where}: the hub names no commit for it")
        return commit

    def _file(self, entry: Any) -> RemoteFile:
        try:
            path, count, large = str(entry["path"]), whole(entry["size"]), entry.get("lfs") or {}
            oid, digest = str(entry["oid"]), large.get("oid") or large.get("sha256")
            if large:
                count = whole(large["size"])
            usable = _SHA256.fullmatch(str(digest)) if large else _OID.fullmatch(oid)
            if not usable or not 0 <= count < 1 << 50:
                raise ValueError("size or checksum")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Problem(
                Reason.ServerError, f"{self._where}: an entry of its list of files is malformed ({error})"
            ) from error
        address = safe(path, self._where)
        below = address.removeprefix(f"{self._uri.folder}/") if self._uri.folder else address
        return RemoteFile(below, count, address, str(digest) if large else None, None if large else oid)

    def read(self, file: RemoteFile, start: int, end: int | None) -> Iterator[memoryview]:
        """Where a file's redirect led is remembered: a large file is many requests, and the hub counts them."""
        url = f"{self._endpoint}/{self._uri.place}/resolve/{self._commit}/{quote(file.address)}"
        with self._lock:
            known = self._locations.get(file.address)
        asked = known or url
        with self._http.get(
            asked,
            headers=ranges.header(file, start, end),
            secret=self._secret if origin(asked) == origin(self._endpoint) else {},
            judge=self._judge if known is None else self._forget(file),
        ) as reply:
            commit = reply.headers.get("x-repo-commit", self._commit)
            if commit != self._commit:
                raise Problem(Reason.ChangedUnderUs, f"{self._where}: {shown(file.path)} is of commit {shown(commit)}")
            if reply.url != asked:
                with self._lock:
                    self._locations[file.address] = reply.url
            yield from ranges.body(reply, file, start, end)

    def _forget(self, file: RemoteFile) -> Any:
        """Signed addresses expire: what such a one refuses is asked for at the hub again."""

        def judge(reply: Reply) -> Problem:
            with self._lock:
                self._locations.pop(file.address, None)
            found = refusal(reply)
            return Problem(Reason.Unreachable, found.what) if reply.status in (400, 401, 403, 404, 410) else found

        return judge

    def _judge(self, reply: Reply) -> Problem:
        """What a refusal means, by the hub's own codes (source: huggingface_hub.utils._http)."""
        code = reply.headers.get("x-error-code", "")
        said = reply.headers.get("x-error-message", "")
        because = f" ({said[:200]})" if said.isprintable() and said else ""
        sent = self._token is not None and origin(reply.url) == origin(self._endpoint)
        if code == "GatedRepo":
            return Problem(Reason.Gated, f"{self._where}: its publisher asks for an agreement{because}")
        if code in ("RepoNotFound", "RevisionNotFound", "EntryNotFound") and reply.status == 404:
            step = "correct the revision in spec.model.uri" if code == "RevisionNotFound" else None
            return Problem(Reason.NotFound, f"{self._where} does not exist{because}", next_step=step)
        if reply.status == 401 and not sent:
            return Problem(
                Reason.Unauthorized,
                f"{self._where} does not exist, or is private, and no token was given",
                next_step="correct spec.model.uri, or put a token of an account that may read it under the key token "
                "into the Secret of spec.model.secretRef",
            )
        if reply.status in (401, 403):
            return Problem(
                Reason.Unauthorized,
                f"{self._where}: the hub refuses the token{because}",
                next_step="put a token of an account that may read it under the key token into the Secret of "
                "spec.model.secretRef",
            )
        return refusal(reply)

    @property
    def _api(self) -> str:
        return f"{self._endpoint}/api/models/{self._uri.place}"

    @property
    def _where(self) -> str:
        return f"hf://{self._uri.place}@{self._uri.revision}"


def _is_folder(entry: Any) -> bool:
    return isinstance(entry, Mapping) and entry.get("type") == "directory"
