"""hf:// against the stub hub: what is fetched, what each refusal becomes, and hubs that lie."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphpod_sources.problem import Reason
from stubs import hub
from stubs.faults.fault import Answer, Cut, Fault, Freeze, Turn
from stubs.hub import commit
from stubs.web import Asked, Reply, WebStub, Where
from tests.unit.sources.fetching import (
    COMMIT,
    CONFIG,
    MODEL,
    WEIGHTS,
    Fetched,
    Script,
    document,
    endless,
    entry,
    listed,
    put,
    there,
)

OTHERS = {"pytorch_model.bin": b"pickle", "modeling.py": b"import os", "README.md": b"#", "original/c.pth": b"x"}
WEIGHTS_PATH = "model.safetensors"


@pytest.fixture
def served(tmp_path: Path) -> Path:
    put(tmp_path / "served/org/tiny/main", MODEL | OTHERS)
    return tmp_path / "served"


@pytest.fixture
def models(served: Path) -> Iterator[WebStub]:
    with hub.serve(served).serving() as stub:
        yield stub


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def fetched(
    stub: WebStub | str, root: Path, uri: str = "hf://org/tiny", token: str = "", stall: float = 20.0
) -> Fetched:
    endpoint = stub if isinstance(stub, str) else stub.url
    return Fetched(uri, root, environment={"HF_ENDPOINT": endpoint, "token": token}, stall=stall)


def loads(stub: WebStub, name: str = WEIGHTS_PATH) -> int:
    """Requests of a file's content."""
    return sum(count for path, count in stub.counts().items() if path.startswith("GET /cdn/") and path.endswith(name))


def test_a_model_is_fetched_at_the_commit_of_its_revision_without_pickles_and_code(
    models: WebStub, served: Path, root: Path
) -> None:
    done = fetched(models, root)
    assert done.problem is None
    assert there(root / "model") == MODEL
    assert done.manifest is not None
    assert done.manifest.commit == commit(served / "org/tiny/main")
    assert {file.path: file.bytes for file in done.manifest.files} == {n: len(c) for n, c in MODEL.items()}
    assert {file.path: file.sha256 for file in done.manifest.files}[WEIGHTS_PATH] == hashlib.sha256(WEIGHTS).hexdigest()
    assert not any(name in path for path in models.counts() for name in OTHERS)
    last = done.progress.snapshot().document()
    assert (last["phase"], last["bytes"], last["totalBytes"], last["files"]) == (
        "Complete",
        last["totalBytes"],
        last["bytes"],
        3,
    )


def test_a_complete_folder_is_not_asked_for_again_and_says_when_it_was_used(models: WebStub, root: Path) -> None:
    first, before = fetched(models, root), sum(models.counts().values())
    again = fetched(models, root)
    assert again.problem is None
    assert sum(models.counts().values()) == before
    assert again.manifest is not None
    assert first.manifest is not None
    assert again.manifest.completed == first.manifest.completed
    assert again.progress.received == 0


def test_a_file_that_was_lost_comes_back_and_the_others_are_not_loaded_again(models: WebStub, root: Path) -> None:
    fetched(models, root)
    (root / "model/tokenizer.json").unlink()
    assert fetched(models, root).problem is None
    assert there(root / "model") == MODEL
    assert loads(models) == 1


def test_a_folder_of_another_model_or_of_somebody_else_is_left_alone(models: WebStub, root: Path) -> None:
    fetched(models, root)
    assert fetched(models, root, "hf://org/other").reason is Reason.BadUri
    assert there(root / "model") == MODEL
    put(root / "mine", {"notes.txt": b"keep"})
    other = Fetched("hf://org/tiny", root, name="mine", environment={"HF_ENDPOINT": models.url})
    assert other.reason is Reason.BadUri
    assert there(root / "mine") == {"notes.txt": b"keep"}


@pytest.mark.parametrize(
    ("uri", "reason", "says"),
    [
        ("hf://org/none", Reason.NotFound, "hf://org/none@main does not exist"),
        ("hf://org/tiny@v9", Reason.NotFound, "correct the revision"),
    ],
)
def test_what_does_not_exist_is_named(models: WebStub, root: Path, uri: str, reason: Reason, says: str) -> None:
    done = fetched(models, root, uri)
    assert done.reason is reason
    assert done.problem is not None
    assert says in done.problem.message


@pytest.mark.parametrize(
    ("status", "reason", "step"),
    [
        (401, Reason.Unauthorized, "spec.model.secretRef"),
        (403, Reason.Gated, "accept the model's terms"),
        (404, Reason.NotFound, "check the name"),
    ],
)
def test_a_refusal_ends_the_fetch_at_once_with_its_next_step(
    models: WebStub, root: Path, status: int, reason: Reason, step: str
) -> None:
    models.board.add(Fault(Answer(status), Where()))
    done = fetched(models, root)
    assert done.reason is reason
    assert done.problem is not None
    assert step in done.problem.message
    assert sum(models.counts().values()) == 1


def test_a_private_repository_wants_the_right_token(served: Path, root: Path) -> None:
    with hub.serve(served, token="hf_right").serving() as private:
        without, wrong = fetched(private, root), fetched(private, root, token="hf_wrong")
        assert (without.reason, wrong.reason) == (Reason.Unauthorized, Reason.Unauthorized)
        assert without.problem is not None
        assert wrong.problem is not None
        assert "no token was given" in without.problem.message
        assert "hf_wrong" not in wrong.problem.message
        assert fetched(private, root, token="hf_right").problem is None


@pytest.mark.parametrize(("status", "after"), [(429, 0), (500, None), (503, 0)])
def test_a_server_that_is_busy_is_asked_again(models: WebStub, root: Path, status: int, after: int | None) -> None:
    models.board.add(Fault(Answer(status, after), Where(), Turn(times=2)))
    models.board.add(Fault(Answer(status, after), Where(path="/cdn/"), Turn(times=1)))
    assert fetched(models, root).problem is None
    assert there(root / "model") == MODEL


@pytest.mark.parametrize(
    ("effect", "reason"),
    [(Answer(429, 3600), Reason.RateLimited), (Answer(503), Reason.ServerError), (Freeze(), Reason.Stalled)],
)
def test_patience_ends_with_the_stall_deadline(
    models: WebStub, root: Path, effect: Answer | Freeze, reason: Reason
) -> None:
    models.board.add(Fault(effect, Where(path="/cdn/")))
    done = fetched(models, root, stall=1.5)
    assert done.reason is reason
    assert done.problem is not None
    assert done.problem.retry
    models.board.clear()
    assert fetched(models, root).problem is None


def test_a_cut_connection_is_resumed_where_it_ended(models: WebStub, root: Path) -> None:
    models.board.add(Fault(Cut(after_bytes=1_000_000), Where(path="/cdn/"), Turn(times=2)))
    done = fetched(models, root)
    assert done.problem is None
    assert there(root / "model") == MODEL
    assert done.progress.received == sum(map(len, MODEL.values())), "no byte came twice"


def test_what_an_ended_fetch_left_is_not_loaded_again(models: WebStub, root: Path) -> None:
    models.board.add(Fault(Cut(after_bytes=2_000_000), Where(path="/cdn/"), Turn(times=1)))
    models.board.add(Fault(Answer(404), Where(path="/cdn/"), Turn(first=2)))
    first = fetched(models, root, stall=0.5)
    assert first.problem is not None
    models.board.clear()
    second = fetched(models, root)
    assert second.problem is None
    assert there(root / "model") == MODEL
    assert first.progress.received + second.progress.received == sum(map(len, MODEL.values()))


def test_parts_of_another_commit_are_thrown_away_and_equal_files_are_kept(
    models: WebStub, served: Path, root: Path
) -> None:
    models.board.add(Fault(Answer(500), Where(path="tokenizer"), Turn(first=1)))
    assert fetched(models, root, stall=0.3).problem is not None
    put(served / "org/tiny/main", {"tokenizer.json": b'{"version": "2.0"}'})
    models.board.clear()
    assert fetched(models, root).problem is None
    assert there(root / "model")["tokenizer.json"] == b'{"version": "2.0"}'


def test_weights_are_not_fetched_when_the_configuration_names_code(served: Path, models: WebStub, root: Path) -> None:
    own = {"architectures": ["OwnForCausalLM"], "model_type": "own", "auto_map": {"AutoModel": "modeling.Own"}}
    put(served / "org/tiny/main", {"config.json": json.dumps(own).encode()})
    assert fetched(models, root).reason is Reason.CodeInRepository
    assert loads(models) == 0


def test_pickled_weights_alone_are_refused_before_anything_is_loaded(served: Path, models: WebStub, root: Path) -> None:
    (served / "org/tiny/main/model.safetensors").unlink()
    assert fetched(models, root).reason is Reason.PickledWeights
    assert not any("resolve" in path for path in models.counts())


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/etc/x.json", "a/../../x.json", ".graphpod.json", "x\u0000.json"]
)
def test_a_hostile_name_in_the_list_of_files_ends_the_fetch(root: Path, name: str) -> None:
    script = Script()
    listed(script, [entry("model.safetensors", WEIGHTS), entry(name, b"{}")])
    with script.serving() as stub:
        assert fetched(stub, root).reason is Reason.BadArchive
        assert not any("resolve" in asked.path for asked in script.asked)
    assert there(root) == {".graphpod-locks/model.lock": b""}


def test_a_list_of_a_million_files_is_not_read_to_its_end(root: Path) -> None:
    script = Script()
    page = [entry(f"{number}.json", b"{}") for number in range(1000)]

    def more(asked: Asked) -> Reply:
        here = f"http://{asked.headers['host']}{asked.path}?cursor={len(script.asked)}"
        return document(page, {"Link": f'<{here}>; rel="next"'})

    listed(script, [])
    script.answers[f"/api/models/org/tiny/tree/{COMMIT}"] = more
    with script.serving() as stub:
        done = fetched(stub, root)
    assert done.reason is Reason.BadUri
    assert len(script.asked) < 30


def test_a_list_that_goes_on_at_another_host_gets_no_token(root: Path) -> None:
    script, other = Script(), Script()
    with script.serving() as stub, other.serving() as elsewhere:
        listed(script, [])
        following = {"Link": f'<{elsewhere.url}/steal>; rel="next"'}
        script.answers[f"/api/models/org/tiny/tree/{COMMIT}"] = document([], following)
        assert fetched(stub, root, token="hf_secret", stall=0.3).reason is Reason.ServerError
    assert other.asked == []


@pytest.mark.parametrize(
    "answer", [b"", b"null", b"[" * 200_000, b'{"sha": 3}', b'{"sha": "../../x"}', b"\xff\xfe", b" " * (40 << 20)]
)
def test_an_answer_that_is_no_answer_is_the_servers_error(root: Path, answer: bytes) -> None:
    script = Script()
    script.answers["/api/models/org/tiny/revision/main"] = Reply(200, {}, answer)
    with script.serving() as stub:
        assert fetched(stub, root, stall=0.3).reason is Reason.ServerError


@pytest.mark.parametrize("changed", [{"size": -1}, {"size": "many"}, {"oid": "../x"}, {"path": None}, {"lfs": [1]}])
def test_an_entry_that_is_malformed_is_the_servers_error(root: Path, changed: dict[str, object]) -> None:
    script = Script()
    listed(script, [{**entry("a.json", b"{}"), **changed}])
    with script.serving() as stub:
        assert fetched(stub, root, stall=0.2).reason in (Reason.ServerError, Reason.NoWeights)


def lying(content: bytes, stated: bytes) -> Script:
    """A hub that lists `stated` as its weights and sends `content`."""
    script = Script()
    listed(script, [entry("config.json", CONFIG), entry(WEIGHTS_PATH, stated)])
    script.answers[f"/org/tiny/resolve/{COMMIT}/config.json"] = Reply(200, {}, CONFIG)
    script.answers[f"/org/tiny/resolve/{COMMIT}/{WEIGHTS_PATH}"] = Reply(200, {}, content)
    return script


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (WEIGHTS + b"more", Reason.ChangedUnderUs),
        (WEIGHTS[:-1], Reason.ChangedUnderUs),
        (WEIGHTS[:-1] + bytes([WEIGHTS[-1] ^ 1]), Reason.ChecksumMismatch),
    ],
    ids=["longer", "shorter", "one bit"],
)
def test_weights_that_are_not_what_was_listed_never_get_their_name(root: Path, content: bytes, reason: Reason) -> None:
    with lying(content, WEIGHTS).serving() as stub:
        assert fetched(stub, root).reason is reason
    assert WEIGHTS_PATH not in there(root / "model")
    with lying(WEIGHTS, WEIGHTS).serving() as stub:
        assert fetched(stub, root).problem is None


def test_a_server_that_ignores_ranges_is_not_taken_for_one_whose_file_changed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphpod_sources.transfer.download.Download.__init__.__defaults__", (2, 1 << 20, 4 << 20))
    with lying(WEIGHTS, WEIGHTS).serving() as stub:
        done = fetched(stub, root)
    assert done.reason is Reason.NoRanges
    assert done.problem is not None
    assert "ignores the header Range: it answers 200 with the whole file" in done.problem.message
    assert "answers range requests with 206" in done.problem.message


def test_a_configuration_that_was_altered_is_found_by_its_git_object_id(root: Path) -> None:
    script = lying(WEIGHTS, WEIGHTS)
    script.answers[f"/org/tiny/resolve/{COMMIT}/config.json"] = Reply(200, {}, CONFIG.replace(b"llama", b"LLAMA"))
    with script.serving() as stub:
        assert fetched(stub, root).reason is Reason.ChecksumMismatch


def test_a_body_without_an_end_is_left_where_the_file_ends(root: Path) -> None:
    script = lying(WEIGHTS, WEIGHTS)
    with endless(b"HTTP/1.1 200 OK\r\n\r\n") as forever, script.serving() as stub:
        path = f"/org/tiny/resolve/{COMMIT}/{WEIGHTS_PATH}"
        script.answers[path] = Reply(302, {"Location": f"{forever}/x"})
        done = fetched(stub, root)
    assert done.reason is Reason.ChecksumMismatch
    assert done.progress.received < len(WEIGHTS) + len(CONFIG) + (1 << 17)


def test_another_commit_in_an_answer_means_that_it_changed(root: Path) -> None:
    script = lying(WEIGHTS, WEIGHTS)
    script.answers[f"/org/tiny/resolve/{COMMIT}/config.json"] = Reply(200, {"X-Repo-Commit": "d" * 40}, CONFIG)
    with script.serving() as stub:
        assert fetched(stub, root).reason is Reason.ChangedUnderUs


def test_a_redirect_takes_no_token_to_another_host(root: Path) -> None:
    script, other = lying(WEIGHTS, WEIGHTS), Script(lambda asked: Reply(200, {}, WEIGHTS))
    with script.serving() as stub, other.serving() as elsewhere:
        path = f"/org/tiny/resolve/{COMMIT}/{WEIGHTS_PATH}"
        script.answers[path] = Reply(302, {"Location": f"{elsewhere.url}/signed?x=1"})
        assert fetched(stub, root, token="hf_secret").problem is None
    assert all(asked.headers["authorization"] == "Bearer hf_secret" for asked in script.asked)
    assert [asked.headers.get("authorization") for asked in other.asked] == [None]


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://host/x", "gopher://x", "http://[::1"])
def test_a_redirect_to_what_is_no_http_is_not_followed(root: Path, location: str) -> None:
    script = lying(WEIGHTS, WEIGHTS)
    script.answers[f"/org/tiny/resolve/{COMMIT}/config.json"] = Reply(302, {"Location": location})
    with script.serving() as stub:
        done = fetched(stub, root, stall=0.5)
    assert done.reason in (Reason.BadUri, Reason.Unreachable)
    assert "config.json" not in there(root / "model")


def test_redirects_in_a_circle_end(root: Path) -> None:
    script = lying(WEIGHTS, WEIGHTS)
    path = f"/org/tiny/resolve/{COMMIT}/config.json"
    script.answers[path] = Reply(302, {"Location": path})
    with script.serving() as stub:
        assert fetched(stub, root, stall=1.5).reason is Reason.ServerError
    assert len(script.asked) < 40


def test_a_hub_that_cannot_be_reached_is_worth_another_try(root: Path) -> None:
    done = fetched("http://127.0.0.1:9", root, stall=0.3)
    assert done.reason is Reason.Unreachable
    assert done.problem is not None
    assert done.problem.retry
