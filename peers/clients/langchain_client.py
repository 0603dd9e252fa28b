"""LangChain by langchain-openai: a chat, a stream, bound tools, structured answers, an agent with two turns."""

from collections.abc import Callable
from typing import Literal

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from .conftest import MODEL


class City(BaseModel):
    """A city."""

    name: Literal["Paris", "Berlin"]


@tool
def weather(city: Literal["Paris", "Berlin"]) -> str:
    """The weather of a city."""
    return f"{city} is sunny."


@pytest.fixture
def chat(api: str) -> ChatOpenAI:
    return ChatOpenAI(
        base_url=api, api_key="none", model=MODEL, temperature=0, max_tokens=300, timeout=300, max_retries=0
    )


def test_a_question_is_answered(chat: ChatOpenAI) -> None:
    said = chat.invoke("What is the capital of France?")
    assert said.content == "The capital of France is Paris."
    assert said.usage_metadata["output_tokens"] > 5
    assert "".join(str(one.content) for one in chat.stream("What is the capital of France?")) == said.content


def test_a_bound_tool_is_called(chat: ChatOpenAI) -> None:
    said = chat.bind_tools([weather], tool_choice="any").invoke("What is the weather in Paris?")
    assert said.tool_calls[0]["name"] == "weather"
    assert said.tool_calls[0]["args"]["city"] in ("Paris", "Berlin")
    pieces = None
    for piece in chat.bind_tools([weather], tool_choice="any").stream("What is the weather in Paris?"):
        pieces = piece if pieces is None else pieces + piece
    assert [call["args"] for call in pieces.tool_calls] == [call["args"] for call in said.tool_calls]


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_a_structured_answer_is_an_object(chat: ChatOpenAI, method: str) -> None:
    found = chat.with_structured_output(City, method=method).invoke("What is the capital of France?")
    assert isinstance(found, City)


def test_an_agent_takes_two_turns(chat: ChatOpenAI) -> None:
    """The first must call the tool; the second reads its result and answers without a call."""

    @wrap_model_call
    def forced(request: object, handler: Callable[[object], object]) -> object:
        first = not any(isinstance(one, ToolMessage) for one in request.messages)
        one = {"parallel_tool_calls": False}
        return handler(request.override(tool_choice="any" if first else "none", model_settings=one))

    agent = create_agent(chat, [weather], middleware=[forced])
    turns = agent.invoke({"messages": [HumanMessage("What is the weather in Paris?")]})["messages"]
    assert [type(turn) for turn in turns] == [HumanMessage, AIMessage, ToolMessage, AIMessage]
    assert turns[2].content.endswith("is sunny.")
    assert turns[3].content
    assert not turns[3].tool_calls
