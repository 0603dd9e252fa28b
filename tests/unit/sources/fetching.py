"""What tests of the fetcher have in common: a model's files, a fetch in this process, servers that misbehave."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from graphpod_sources.credentials import Credentials
from graphpod_sources.fetch import Request, fetch
from graphpod_sources.listing import Source
from graphpod_sources.manifest import Manifest
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.progress import Progress
from graphpod_sources.stores.choice import source_of
from graphpod_sources.uri import ModelUri, parse
from stubs.web import Asked, Program, Reply, WebStub

CONFIG = json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}).encode()
WEIGHTS = hashlib.shake_256(b"weights").digest(3_000_000)
MODEL = {"config.json": CONFIG, "tokenizer.json": b'{"version": "1.0"}', "model.safetensors": WEIGHTS}
COMMIT = "c" * 40
ANSWER_SECONDS = 20.0


def put(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Files below a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def there(folder: Path) -> dict[str, bytes]:
    """All files below a folder, but for the manifest."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".graphpod.json")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


class Fetched:
    """One fetch into `root`/model: its manifest or its problem, its log, and how far it came."""

    def __init__(
        self,
        uri: str | ModelUri,
        root: Path,
        *,
        environment: Mapping[str, str] | None = None,
        sha256: str | None = None,
        source: Source | None = None,
        include: Sequence[str] = (),
        stall: float = 20.0,
        size: int | None = None,
        keep: Sequence[str] = (),
        name: str = "model",
    ) -> None:
        self.progress, self.log = Progress(), list[str]()
        self.manifest: Manifest | None = None
        self.problem: Problem | None = None
        root.mkdir(exist_ok=True)
        try:
            parsed = parse(uri) if isinstance(uri, str) else uri
            known = Credentials(dict(environment or {}))
            request = Request(parsed, root, name, include, stall, size, frozenset(keep))
            # A short deadline is there so that tries end soon: an answer may take longer where others compute.
            chosen = source or source_of(parsed, known, sha256, max(stall, ANSWER_SECONDS))
            self.manifest = fetch(request, chosen, self.progress, self.log.append)
        except Problem as problem:
            self.problem = problem

    @property
    def reason(self) -> Reason | None:
        return self.problem.reason if self.problem else None


class Script:
    """A program for a stub: `answers` by path, a function of the request or a reply; the rest from `otherwise`."""

    def __init__(self, otherwise: Program | None = None) -> None:
        self.answers: dict[str, Callable[[Asked], Reply] | Reply] = {}
        self.asked: list[Asked] = []
        self._otherwise = otherwise

    def __call__(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        answer = self.answers.get(asked.path)
        if answer is None:
            return self._otherwise(asked) if self._otherwise else Reply(404)
        return answer if isinstance(answer, Reply) else answer(asked)

    @contextmanager
    def serving(self) -> Iterator[WebStub]:
        with WebStub(self, Reply).serving() as stub:
            yield stub


def document(content: object, headers: Mapping[str, str] | None = None) -> Reply:
    """A JSON answer."""
    return Reply(200, {"Content-Type": "application/json", **(headers or {})}, json.dumps(content).encode())


def entry(path: str, content: bytes) -> dict[str, object]:
    """A file as a hub's tree lists it, large ones by their SHA-256."""
    digest = hashlib.sha256(content).hexdigest()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    large = {"lfs": {"oid": digest, "size": len(content)}} if path.endswith(".safetensors") else {}
    return {"type": "file", "path": path, "size": len(content), "oid": blob, **large}


def listed(script: Script, entries: object) -> None:
    """Make a script answer as a hub that has these files of org/tiny."""
    script.answers["/api/models/org/tiny/revision/main"] = document({"sha": COMMIT})
    script.answers[f"/api/models/org/tiny/tree/{COMMIT}"] = document(entries)


@contextmanager
def endless(head: bytes) -> Iterator[str]:
    """A server that answers everything with `head` and then zeros without an end; its address."""
    stop = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(head)
            try:
                while not stop.is_set():
                    self.wfile.write(bytes(1 << 16))
            except OSError:
                pass  # the client has had enough

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        stop.set()
        server.shutdown()
        server.server_close()
        thread.join()
