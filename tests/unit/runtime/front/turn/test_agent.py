"""A scripted agent on real weights: SmolLM2, whose calls a grammar forces, through OpenAI's own client."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.weights import model_folder
from graphpod_policy import ExitCode
from tests.unit.house.pages import Page

from ..conftest import Front, launch_fork
from ..page_code import ADDRESS, run_blocks

DOCS = Path(__file__).parents[5] / "docs"
PAGE = Page(DOCS / "how-to/tools.md")
OTHERS = [
    pytest.param(Page(DOCS / name), marks=() if "embeddings" in name else pytest.mark.slow, id=name)
    for name in ("how-to/structured-output.md", "how-to/embeddings.md", "reference/http.md")
]
"""Pages whose commands and programs need real weights to show what they say, too. `make samples` has all."""

PARAMETERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "of": {"$ref": "#/$defs/Unit"}},
    "required": ["a", "b"],
    "additionalProperties": False,
    "$defs": {"Unit": {"type": "string", "enum": ["apples", "pears"]}},
}
TOOLS = [
    {"type": "function", "function": {"name": "add", "description": "Add two numbers.", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "now", "description": "The time."}},
]
ADD = {"type": "function", "function": {"name": "add"}}
ASKED = [("required", "tool_calls", True), (ADD, "stop", False), ("required", "tool_calls", False), (ADD, "stop", True)]
"""Which call is wanted, how the answer ends, whether it is streamed: `make test` has each word once."""


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """`graphpod-engine serve` in a fork, on the weights of the demo."""
    folder = tmp_path_factory.mktemp("smollm2")
    words = ("serve", "--model", str(model_folder()), "--name", "smollm2", "--host", "127.0.0.1")
    ports = ("--http-port", "0", "--admin-port", "0", "--termination-log", str(folder / "termination-log"))
    plain = ("--prefill", "Disabled", "--decode", "Disabled")
    front = launch_fork(folder, [*words, *ports, *plain])
    front.eventually("ready", lambda: "ready: smollm2" in front.log.read_text())
    yield front
    front.process.terminate()
    assert front.ended() == ExitCode.Drained, front.log.read_text()


def turn_of(stream: Any) -> tuple[dict[str, Any], str | None]:
    """The assistant's turn that a stream brings, and how it ended."""
    calls: list[dict[str, Any]] = []
    content, finish = "", None
    for chunk in stream:
        (choice,) = chunk.choices
        finish = choice.finish_reason or finish
        content += choice.delta.content or ""
        for part in choice.delta.tool_calls or []:
            if part.id:
                assert part.index == len(calls)
                calls.append(
                    {"id": part.id, "type": part.type, "function": {"name": part.function.name, "arguments": ""}}
                )
            calls[part.index]["function"]["arguments"] += part.function.arguments
    turn: dict[str, Any] = {"role": "assistant", "content": content or None}
    return turn | ({"tool_calls": calls} if calls else {}), finish


@pytest.mark.parametrize(
    ("choice", "ended", "streamed"),
    [pytest.param(*one, marks=() if one in ASKED[:2] else pytest.mark.slow) for one in ASKED],
)
def test_an_agent_calls_and_goes_on_with_the_answer(smollm2: Front, choice: Any, ended: str, streamed: bool) -> None:
    client = smollm2.client()

    def ask(**more: Any) -> tuple[dict[str, Any], str | None]:
        said: Any = client.chat.completions.create(
            model="smollm2", messages=messages, tools=TOOLS, temperature=0, stream=streamed, **more
        )
        if streamed:
            return turn_of(said)
        return said.choices[0].message.model_dump(exclude_none=True), said.choices[0].finish_reason

    messages: list[Any] = [{"role": "user", "content": "What is 2 plus 3? Use the tool."}]
    turn, finish = ask(tool_choice=choice, parallel_tool_calls=False, max_tokens=100)
    assert finish == ended
    assert not turn.get("content")
    (call,) = turn["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    assert call["function"]["name"] == "add"
    assert {type(arguments["a"]), type(arguments["b"])} == {int}
    assert arguments.get("of", "apples") in ("apples", "pears")
    messages += [turn, {"role": "tool", "tool_call_id": call["id"], "content": str(arguments["a"] + arguments["b"])}]
    answer, _ = ask(max_tokens=8)
    assert answer["content"]


def test_an_answer_of_one_token_has_no_call(smollm2: Front) -> None:
    messages: Any = [{"role": "user", "content": "What is 2 plus 3?"}]
    for choice in ("required", ADD):
        said = smollm2.client().chat.completions.create(
            model="smollm2",
            messages=messages,
            tools=TOOLS,
            tool_choice=choice,
            max_tokens=1,  # type: ignore[arg-type]
        )
        assert (said.choices[0].finish_reason, said.choices[0].message.tool_calls) == ("length", None)


def test_with_structured_output_a_turn_is_the_answer_or_calls(smollm2: Front) -> None:
    schema = {
        "type": "object",
        "properties": {"sum": {"enum": [5]}},
        "required": ["sum"],
        "additionalProperties": False,
    }
    for seed in range(2):
        said = smollm2.client().chat.completions.create(
            model="smollm2",
            messages=[{"role": "user", "content": "What is 2 plus 3?"}],
            tools=TOOLS,  # type: ignore[arg-type]
            response_format={"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}},
            max_tokens=20,
            seed=seed,
        )
        message = said.choices[0].message
        assert message.tool_calls or message.content is None or '{"sum":5}'.startswith("".join(message.content.split()))


def test_several_calls_may_be_forced(smollm2: Front) -> None:
    messages: Any = [{"role": "user", "content": "Add 1 and 2, then 3 and 4."}]
    said = smollm2.client().chat.completions.create(
        model="smollm2",
        messages=messages,
        tools=TOOLS,
        tool_choice="required",
        max_tokens=60,
        temperature=0,  # type: ignore[arg-type]
    )
    calls: Any = said.choices[0].message.tool_calls
    assert calls
    whole = calls if said.choices[0].finish_reason == "tool_calls" else calls[:-1]
    assert all(
        call.function.name in ("add", "now") and json.loads(call.function.arguments) is not None for call in whole
    )


def test_the_pages_code_runs_in_its_order(smollm2: Front) -> None:
    blocks, said, names = run_blocks(PAGE, smollm2)
    assert blocks == 3
    assert said.startswith('add {"a": ')
    assert names["second"].choices[0].message.content


@pytest.mark.parametrize("page", OTHERS)
def test_the_code_of_other_pages_runs(smollm2: Front, page: Page) -> None:
    commands = [block.text for block in page.blocks if not block.language and "curl " in block.text]
    program = "\n".join(block.text for block in page.blocks if block.language == "python")
    # What a block shows of an answer follows its command.
    shells = ["\n".join(line for line in text.splitlines() if not line.startswith('{"')) for text in commands]
    assert shells
    for words, code in [
        *((["bash", "-euo", "pipefail", "-c"], code) for code in shells),
        ([sys.executable, "-c"], program),
    ]:
        here = code.replace(ADDRESS, smollm2.http)
        ran = subprocess.run([*words, here], capture_output=True, text=True, timeout=300)
        assert (ran.returncode, '"error"' in ran.stdout) == (0, False), ran.stdout + ran.stderr
        assert ran.stdout or not code
