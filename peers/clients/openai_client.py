"""The openai package: chat, streams, parsed answers, tools, responses, embeddings, errors, retries, timeouts."""

import json
from typing import Literal

import httpx
import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from .conftest import MODEL

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Berlin"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


class Answer(BaseModel):
    """What a parsed answer holds."""

    city: Literal["Paris", "Berlin"]
    sure: bool


@pytest.fixture
def client(api: str) -> OpenAI:
    return OpenAI(base_url=api, api_key="none", max_retries=0, timeout=300)


def test_a_chat_whole_and_streamed_is_the_same(client: OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=12, temperature=0)
    assert whole.choices[0].message.content == "The capital of France is Paris."
    stream = client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,
        max_tokens=12,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    events = list(stream)
    assert (
        "".join(one.choices[0].delta.content or "" for one in events if one.choices) == whole.choices[0].message.content
    )
    assert events[-1].usage == whole.usage or events[-1].usage.completion_tokens == whole.usage.completion_tokens
    with client.chat.completions.stream(model=MODEL, messages=QUESTION, max_tokens=12, temperature=0) as helper:
        helper.until_done()
        assert helper.get_final_completion().choices[0].message.content == whole.choices[0].message.content


def test_a_parsed_answer_is_an_object(client: OpenAI) -> None:
    found = client.chat.completions.parse(
        model=MODEL, messages=QUESTION, response_format=Answer, max_tokens=60, temperature=0
    )
    assert isinstance(found.choices[0].message.parsed, Answer)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_tool_is_called_and_its_result_read(client: OpenAI, choice: object) -> None:
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    first = client.chat.completions.create(
        model=MODEL, messages=messages, tools=[WEATHER], tool_choice=choice, parallel_tool_calls=False,
        max_tokens=80, temperature=0,
    )  # fmt: skip
    (call,) = first.choices[0].message.tool_calls
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments)["city"] in ("Paris", "Berlin")
    messages += [first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "Sunny, 20 degrees."}]
    second = client.chat.completions.create(
        model=MODEL, messages=messages, tools=[WEATHER], max_tokens=24, temperature=0
    )
    assert second.choices[0].finish_reason in ("stop", "length", "tool_calls")
    assert second.usage.prompt_tokens > first.usage.prompt_tokens


def test_a_streamed_call_is_the_whole_one(client: OpenAI) -> None:
    asked = {
        "model": MODEL, "messages": QUESTION, "tools": [WEATHER], "tool_choice": "required", "max_tokens": 80,
        "temperature": 0,
    }  # fmt: skip
    (whole,) = client.chat.completions.create(**asked).choices[0].message.tool_calls
    name, arguments, ends = "", "", []
    for event in client.chat.completions.create(**asked, stream=True):
        choice = event.choices[0]
        for call in choice.delta.tool_calls or ():
            name += call.function.name or ""
            arguments += call.function.arguments or ""
        ends.append(choice.finish_reason)
    assert (name, arguments) == (whole.function.name, whole.function.arguments)
    assert [end for end in ends if end] == ["tool_calls"]


def test_a_response_and_its_events(client: OpenAI) -> None:
    asked = {"model": MODEL, "input": "What is the capital of France?", "max_output_tokens": 16, "temperature": 0}
    whole = client.responses.create(**asked)
    assert whole.output_text.startswith("The capital of France is Paris")
    events = list(client.responses.create(**asked, stream=True))
    assert events[0].type == "response.created"
    assert events[-1].type in ("response.completed", "response.incomplete")
    assert "".join(one.delta for one in events if one.type == "response.output_text.delta") == whole.output_text
    second = client.responses.create(
        model=MODEL, input="And of Germany?", previous_response_id=whole.id, max_output_tokens=16, temperature=0
    )
    assert second.usage.input_tokens > whole.usage.total_tokens


def test_embeddings_have_the_models_width(client: OpenAI) -> None:
    found = client.embeddings.create(model=MODEL, input=["one text", "another"])
    assert [len(one.embedding) for one in found.data] == [576, 576]
    assert found.usage.prompt_tokens > 0


def test_errors_are_the_clients_own(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist here"):
        client.chat.completions.create(model="other", messages=QUESTION)
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=9)
    assert (refused.value.code, refused.value.param) == ("invalid_value", "temperature")
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model=MODEL, prompt="a " * 5000)
    assert long.value.code == "context_length_exceeded"


def test_a_timeout_leaves_nothing_open(client: OpenAI, url: str) -> None:
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.2).completions.create(
            model=MODEL, prompt="Once", max_tokens=1500, extra_body={"ignore_eos": True}
        )
    for _ in range(200):
        if httpx.get(f"{url}/load").json() == {"server_load": 0}:
            return
    pytest.fail("the request is open after 200 questions")


def test_a_full_server_is_asked_again(api: str, url: str) -> None:
    """A 503 with Retry-After: the client waits and repeats."""
    answers = iter([503, 503, 200])

    def handle(request: httpx.Request) -> httpx.Response:
        if (status := next(answers)) == 503:
            error = {"message": "full", "type": "service_unavailable", "param": None, "code": "queue_full"}
            return httpx.Response(status, json={"error": error}, headers={"retry-after": "0"})
        return httpx.post(str(request.url), content=request.content, headers={"content-type": "application/json"})

    transport = httpx.MockTransport(handle)
    client = OpenAI(base_url=api, api_key="none", max_retries=2, http_client=httpx.Client(transport=transport))
    said = client.completions.create(model=MODEL, prompt="Hello", max_tokens=2)
    assert said.usage.completion_tokens == 2
