"""GET /openapi.json, and that the server answers as it says."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest

from graphpod_policy import ServingConfig
from graphpod_runtime.front.openapi.operations import OPERATIONS

from .conftest import Front, start_front

KEY = "sk-openapi"
WITH_KEY = {"authorization": f"Bearer {KEY}"}
SETTINGS = Path(__file__).with_name("schemathesis.toml")
EXAMPLES, SEED = 12, 1
"""Bodies drawn for each operation. `make fuzz-api` draws more, and makes one for every bound and type of a schema."""
LIMIT = 300.0
"""Seconds."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A front that wants a key."""
    folder = tmp_path_factory.mktemp("openapi")
    file = folder / "keys"
    file.write_text(f"{KEY}\n")
    front = start_front(folder, api_key_file=file)
    yield front
    front.process.kill()
    front.process.wait()


def document(front: Front, **headers: str) -> Any:
    said = httpx2.get(front.http + "/openapi.json", headers=headers)
    assert said.headers["content-type"] == "application/json"
    return said.json()


def test_schemathesis_finds_no_answer_that_the_document_does_not_have(guarded: Front, tmp_path: Path) -> None:
    """Statuses, media types, schemas, headers, methods and the key, by bodies that fit the schemas and that do not."""
    command = [str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(SETTINGS), "run"]
    options = ["--phases", "examples,fuzzing", "--seed", str(SEED), "--max-examples", str(EXAMPLES), "--no-color"]
    key = ["--header", f"Authorization: Bearer {KEY}"]
    found = subprocess.run(
        [*command, f"{guarded.http}/openapi.json", *options, *key],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        cwd=tmp_path,
    )
    assert found.returncode == 0, found.stdout[-8000:] + found.stderr[-2000:]
    assert f"Tested: {len(OPERATIONS) - 1}\n" in found.stdout, "all but the document itself"


def test_every_route_is_in_the_document(guarded: Front) -> None:
    said = document(guarded, **WITH_KEY)
    assert {f"{method.upper()} {path}" for path, one in said["paths"].items() for method in one} == set(OPERATIONS)
    assert said["paths"]["/health"]["get"]["security"] == []
    assert said["paths"]["/v1/models"]["get"]["security"] == [{"key": []}]
    assert said["components"]["securitySchemes"] == {"key": {"type": "http", "scheme": "bearer"}}
    version = httpx2.get(guarded.http + "/version", headers=WITH_KEY).json()["version"]
    assert said["info"]["version"] == version


def test_the_document_needs_the_key(guarded: Front, front: Front) -> None:
    assert document(guarded)["error"]["code"] == "invalid_api_key"
    said = document(front)
    assert "securitySchemes" not in said["components"]
    assert not any("security" in operation for path in said["paths"].values() for operation in path.values())


def test_a_closed_path_is_not_in_the_document(tmp_path: Path) -> None:
    front = start_front(tmp_path, serving=ServingConfig(max_queue=4, drain_seconds=30, http_metrics=False))
    try:
        assert "/metrics" not in document(front)["paths"]
    finally:
        front.process.kill()
        front.process.wait()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}], "logprobs": True}),
        ("/v1/completions", {"prompt": "hello", "logprobs": 1, "echo": True, "return_token_ids": True}),
    ],
)
def test_an_answer_and_its_events_have_their_schemas(front: Front, path: str, body: dict[str, Any]) -> None:
    said = document(front)
    done = said["paths"][path]["post"]["responses"]["200"]["content"]
    name = done["text/event-stream"]["schema"]["description"].split("`")[1]
    whole = {"components": said["components"], "$ref": done["application/json"]["schema"]["$ref"]}
    piece = {"components": said["components"], "$ref": f"#/components/schemas/{name}"}
    answer = front.post(path, {"model": "echo", "max_tokens": 8, **body})
    assert answer.status_code == 200
    jsonschema.validate(answer.json(), whole)
    stream = front.post(path, {"model": "echo", "max_tokens": 8, "stream": True, **body})
    events = [line.removeprefix("data: ") for line in stream.text.splitlines() if line.startswith("data: {")]
    assert len(events) > 1
    for one in events:
        jsonschema.validate(json.loads(one), piece)
