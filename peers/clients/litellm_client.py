"""LiteLLM: its SDK, and its proxy in front of the engine."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import litellm
import openai
import pytest

from .conftest import MODEL
from .openai_client import QUESTION, WEATHER
from .pages import FOLDER, program

SECONDS = 120


def test_the_sdk_chats_streams_and_calls(api: str) -> None:
    asked = {"model": f"hosted_vllm/{MODEL}", "api_base": api, "messages": QUESTION, "temperature": 0, "max_tokens": 60}
    whole = litellm.completion(**asked)
    assert whole.choices[0].message.content == "The capital of France is Paris."
    pieces = [one.choices[0].delta.content or "" for one in litellm.completion(**asked, stream=True)]
    assert "".join(pieces) == whole.choices[0].message.content
    called = litellm.completion(**asked, tools=[WEATHER], tool_choice="required")
    assert json.loads(called.choices[0].message.tool_calls[0].function.arguments)["city"] in ("Paris", "Berlin")


def test_the_sdk_raises_its_own_errors(api: str) -> None:
    with pytest.raises(litellm.BadRequestError):
        litellm.completion(model=f"hosted_vllm/{MODEL}", api_base=api, messages=QUESTION, temperature=9)


@pytest.fixture(scope="module")
def proxy(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("proxy")
    config = folder / "config.yaml"
    config.write_text(program(FOLDER / "litellm.md", "yaml", url))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("litellm")), "--config", str(config), "--port", str(port)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([*command, "--host", "127.0.0.1"], stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    try:
        address = f"http://127.0.0.1:{port}"
        transport = httpx.HTTPTransport(retries=0)
        with httpx.Client(transport=transport) as client:
            while True:
                assert process.poll() is None, (folder / "log").read_text()
                try:
                    if client.get(f"{address}/health/liveliness", timeout=SECONDS).status_code == 200:
                        break
                except httpx.ConnectError:
                    process_wait(process)
        yield address
    finally:
        process.terminate()
        process.wait(SECONDS)


def process_wait(process: subprocess.Popen) -> None:
    """Half a second, or less if the process ends."""
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        return


def test_the_proxy_passes_chats_and_streams(proxy: str) -> None:
    client = openai.OpenAI(base_url=proxy, api_key="sk-of-your-own", max_retries=0, timeout=300)
    whole = client.chat.completions.create(model="chat", messages=QUESTION, max_tokens=12, temperature=0)
    assert whole.choices[0].message.content == "The capital of France is Paris."
    stream = client.chat.completions.create(model="chat", messages=QUESTION, max_tokens=12, temperature=0, stream=True)
    assert "".join(one.choices[0].delta.content or "" for one in stream) == whole.choices[0].message.content
