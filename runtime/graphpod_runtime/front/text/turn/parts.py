"""What an assistant's turn is made of: text, reasoning and calls of tools, in the order in which they came."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Content:
    """More of the text that the user reads."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """More of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A call of the tool `name`, the turn's call number `index` from 0 on. Its arguments follow."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the arguments of call `index`: all of them joined are JSON, as far as the model wrote JSON."""

    index: int
    text: str


Part = Content | Reasoning | CallBegun | CallArguments


@dataclass(frozen=True, slots=True)
class Call:
    """A whole call; `arguments` is JSON as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Turn:
    """A whole turn."""

    content: str
    reasoning: str
    calls: tuple[Call, ...]


def joined(parts: Iterable[Part]) -> Turn:
    """The turn that the parts make."""
    content, reasoning, begun, arguments = list[str](), list[str](), list[CallBegun](), list[list[str]]()
    for part in parts:
        match part:
            case Content(text):
                content.append(text)
            case Reasoning(text):
                reasoning.append(text)
            case CallBegun():
                begun.append(part)
                arguments.append([])
            case CallArguments(index, text):
                arguments[index].append(text)
    calls = [Call(call.id, call.name, "".join(texts)) for call, texts in zip(begun, arguments, strict=True)]
    return Turn("".join(content), "".join(reasoning), tuple(calls))
