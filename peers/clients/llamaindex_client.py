"""LlamaIndex by its OpenAILike: completions, chats, streams, and calls of a tool."""

from typing import Literal

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

from .conftest import MODEL

QUESTION = [ChatMessage(role="user", content="What is the capital of France?")]


def weather(city: Literal["Paris", "Berlin"]) -> str:
    """The weather of a city."""
    return f"{city} is sunny."


@pytest.fixture
def llm(api: str) -> OpenAILike:
    return OpenAILike(
        model=MODEL, api_base=api, api_key="none", is_chat_model=True, is_function_calling_model=True,
        context_window=2048, temperature=0, max_tokens=60, timeout=300, max_retries=0,
    )  # fmt: skip


def test_a_chat_whole_and_streamed(llm: OpenAILike) -> None:
    whole = llm.chat(QUESTION)
    assert whole.message.content == "The capital of France is Paris."
    assert "".join(one.delta or "" for one in llm.stream_chat(QUESTION)) == whole.message.content


def test_a_completion(api: str) -> None:
    llm = OpenAILike(
        model=MODEL, api_base=api, api_key="none", is_chat_model=False, context_window=2048, temperature=0,
        max_tokens=8, timeout=300, max_retries=0,
    )  # fmt: skip
    assert "Paris" in llm.complete("The capital of France is").text


def test_a_tool_is_called(llm: OpenAILike) -> None:
    said = llm.chat_with_tools(
        [FunctionTool.from_defaults(weather)], "What is the weather in Paris?", tool_required=True
    )
    (call,) = llm.get_tool_calls_from_response(said)
    assert (call.tool_name, call.tool_kwargs["city"] in ("Paris", "Berlin")) == ("weather", True)
