"""Front processes over the scripted engine, with a byte-level tokenizer."""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx2
import openai
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from graphpod_policy import EngineConfig, GraphConfig, ModelConfig, PhasePlan, Policy, ServingConfig, config_hash
from graphpod_runtime import cli
from graphpod_runtime.front.status import Status
from tests.forked import Forked, Streams, forked

from .front_forks import front_forks, prepare_engine

WAIT_SECONDS = 180.0


def byte_tokenizer() -> Tokenizer:
    """One token a byte, and the special end token 256: every character beyond ASCII spans tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: id for id, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<end>", special=True)])
    return tokenizer


TEXT_ONLY = "{% for turn in messages %}{{ turn.content }}{% endfor %}"


def write_model(folder: Path, template: str | None = TEXT_ONLY) -> Path:
    """A model folder as far as the front reads it; its usual template writes the messages' text, nothing else."""
    folder.mkdir(exist_ok=True)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    config = {"eos_token": {"content": "<end>"}} | ({"chat_template": template} if template else {})
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def engine_json(folder: Path, model: Path, **changes: Any) -> Path:
    """A small engine's configuration file."""
    settings: dict[str, Any] = {
        "dtype": "float32",
        "max_model_len": 200_000,
        "max_batch": 4,
        "prefill_chunk": 16,
        "page_size": 16,
        "serving": ServingConfig(max_queue=4, drain_seconds=30),
    } | changes
    graph = GraphConfig(
        PhasePlan(Policy.Auto, Policy.Breakable, (4, 8, 16)), PhasePlan(Policy.Auto, Policy.Full, (1, 2, 4))
    )
    path = folder / "engine.json"
    path.write_bytes(EngineConfig(model=ModelConfig("echo", str(model)), graph=graph, **settings).canonical())
    return path


def first_status(file: Path) -> Status:
    """That of a front at its start, by its configuration file."""
    data = file.read_bytes()
    return Status.of(EngineConfig.parse(data), config_hash(data), "uid")


def eventually(what: str, holds: Callable[[], bool], log: Path) -> None:
    """Waits until `holds`; `log` is the evidence when it never does."""
    limit = (began := time.monotonic()) + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < limit, f"never: {what}\n{log.read_text()}"
        time.sleep(max(0.02, time.monotonic() - began))  # to ask costs the process that is asked, too
        began = time.monotonic()


@dataclass
class Front:
    """A running front process."""

    process: subprocess.Popen[bytes] | Forked
    log: Path
    termination_log: Path
    http: str
    admin: str

    def get(self, path: str) -> httpx2.Response:
        """GET on the admin port."""
        return httpx2.get(self.admin + path, timeout=WAIT_SECONDS)

    def post(self, path: str, body: Any) -> httpx2.Response:
        """POST on the API port; bytes go as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        return httpx2.post(self.http + path, content=content, headers=headers, timeout=WAIT_SECONDS)

    def client(self, key: str = "none") -> openai.OpenAI:
        """OpenAI's own client, which must not hide an error behind a retry."""
        return openai.OpenAI(base_url=f"{self.http}/v1", api_key=key, max_retries=0, timeout=WAIT_SECONDS)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the exported series of `name` with these labels."""
        total = 0.0
        for line in self.get("/metrics").text.splitlines():
            match = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
            if match and all(f'{key}="{value}"' in (match[1] or "") for key, value in labels.items()):
                total += float(match[2])
        return total

    def eventually(self, what: str, holds: Callable[[], bool]) -> None:
        """Waits until `holds`; the process's log is the evidence when it never does, or has ended."""

        def holds_alive() -> bool:
            assert self.process.poll() is None, f"ended before {what}\n{self.log.read_text()}"
            return holds()

        eventually(what, holds_alive, self.log)

    def ended(self) -> int:
        """The exit code, once the process has ended."""
        return self.process.wait(WAIT_SECONDS)

    def engine_pid(self) -> int:
        """The engine process, the front's only child."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        assert len(children) == 1, children
        return int(children[0])


def start_front(
    folder: Path,
    *,
    script: str = "",
    accept_seconds: float = 0.0,
    stuck_seconds: float = 60.0,
    ready: bool = True,
    idle_seconds: float = 15.0,
    api_key_file: Path | None = None,
    environment: dict[str, str] | None = None,
    options: dict[str, Any] | None = None,
    **changes: Any,
) -> Front:
    """A front over the scripted engine; waits until it is ready, or with ready=False until it listens. `options` are
    further ones of the server.
    """
    model = changes.pop("model", None) or write_model(folder / "model")
    config = changes.pop("config", None) or engine_json(folder, model, **changes)
    environment = (environment or {}) | {
        "GRAPHPOD_SCRIPT": script,
        "GRAPHPOD_STUCK_SECONDS": str(stuck_seconds),
        "GRAPHPOD_IDLE_SECONDS": str(idle_seconds),
    }
    if options:
        environment["GRAPHPOD_OPTIONS"] = json.dumps(options)
    if api_key_file is not None:
        environment["GRAPHPOD_API_KEY_FILE"] = str(api_key_file)
    log, arguments = folder / "front.log", (str(config), str(folder / "termination-log"), str(accept_seconds))
    log.touch()
    process = front_forks().start(arguments, os.environ | {"POD_UID": "uid-1"} | environment, log)
    front = listening(process, folder)
    if ready:
        front.eventually("the front is ready", lambda: "ready: echo" in front.log.read_text())
        assert front.get("/readyz").status_code == 200
    return front


def launch(folder: Path, command: list[str], **environment: str) -> Front:
    """A front process, as soon as it listens. Its log and termination message are in `folder`."""
    log = folder / "front.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | {"POD_UID": "uid-1"} | environment
        )
    return listening(process, folder)


def launch_fork(folder: Path, words: Sequence[str], listens: bool = True, **environment: str) -> Front:
    """`launch` of `graphpod-engine` with these words, as `engine_fork`; `listens` False: it may end before it does."""
    with (folder / "front.log").open("wb") as log:
        process = engine_fork(words, os.environ | {"POD_UID": "uid-1"} | environment, log)
    return listening(process, folder) if listens else _front(process, folder)


def engine_fork(words: Sequence[str], environment: Mapping[str, str], log: IO[Any]) -> Forked:
    """`graphpod-engine` with these words, front and engine as forks of this process, which has done their imports."""

    def program() -> int:
        prepare_engine()
        return cli.main(words)

    with Path(os.devnull).open() as nothing:
        return forked(program, environment, Streams(nothing.fileno(), log.fileno(), log.fileno()))


def listening(process: subprocess.Popen[bytes] | Forked, folder: Path) -> Front:
    """The front of this process, as soon as it listens."""
    front = _front(process, folder)
    line = re.compile(r"listening: http (\S+), admin (\S+)")
    front.eventually("the front listens", lambda: bool(line.search(front.log.read_text())))
    found = line.search(front.log.read_text())
    assert found
    front.http, front.admin = f"http://{found[1]}", f"http://{found[2]}"
    return front


def _front(process: subprocess.Popen[bytes] | Forked, folder: Path) -> Front:
    return Front(process, folder / "front.log", folder / "termination-log", "", "")


@pytest.fixture(scope="session")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A ready front that tests share."""
    running = start_front(tmp_path_factory.mktemp("front"))
    yield running
    running.process.terminate()
    assert running.ended() == 0, running.log.read_text()


@pytest.fixture
def own_front(tmp_path: Path) -> Iterator[Callable[..., Front]]:
    """own_front(...) -> a front of the test's own, ended with the test."""
    started: list[Front] = []

    def start(**arguments: Any) -> Front:
        started.append(start_front(tmp_path, **arguments))
        return started[-1]

    yield start
    for running in started:
        running.process.kill()
        running.process.wait()
