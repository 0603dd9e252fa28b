"""The anthropic package: messages, streams, tools, errors."""

import anthropic
import pytest

from .conftest import MODEL

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY = {"temperature": 0}
"""The package has no such field any more."""
WEATHER = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Paris", "Berlin"]}},
        "required": ["city"],
    },
}


@pytest.fixture
def client(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=300)


def test_a_message_whole_and_streamed(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(model=MODEL, messages=QUESTION, max_tokens=12, extra_body=GREEDY)
    assert [block.text for block in whole.content] == ["The capital of France is Paris."]
    assert (whole.role, whole.stop_reason) == ("assistant", "end_turn")
    with client.messages.stream(model=MODEL, messages=QUESTION, max_tokens=12, extra_body=GREEDY) as stream:
        assert "".join(stream.text_stream) == whole.content[0].text
        assert stream.get_final_message().usage.output_tokens == whole.usage.output_tokens


def test_a_tool_is_called_and_its_result_read(client: anthropic.Anthropic) -> None:
    first = client.messages.create(
        model=MODEL, messages=QUESTION, max_tokens=80, extra_body=GREEDY, tools=[WEATHER],
        tool_choice={"type": "tool", "name": "weather"},
    )  # fmt: skip
    (call,) = [block for block in first.content if block.type == "tool_use"]
    assert (first.stop_reason, call.name, call.input["city"] in ("Paris", "Berlin")) == ("tool_use", "weather", True)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "Sunny."}
    turns = [*QUESTION, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = client.messages.create(model=MODEL, messages=turns, max_tokens=12, extra_body=GREEDY, tools=[WEATHER])
    assert second.usage.input_tokens > first.usage.input_tokens


def test_errors_are_the_clients_own(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="other", messages=QUESTION, max_tokens=4)
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(model=MODEL, messages=[], max_tokens=4)
