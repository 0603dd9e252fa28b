"""The chat template of a model folder: a conversation as the text that the model was trained on."""

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.meta

from graphpod_runtime.base.files.regular_file import read_if_there
from graphpod_runtime.front.text.bounded_jinja import BoundedEnvironment
from graphpod_runtime.front.text.template_sizes import as_json
from graphpod_runtime.front.text.tool_prompt import without_tools

WORDS = 500
"""Characters of a template's own words that a refusal repeats."""
REASONING = re.compile(r"\breasoning(_content)?\b|\.thinking\b|['\"]thinking['\"]")
"""How templates name the reasoning of a turn."""
OURS = frozenset({"messages", "add_generation_prompt", "tools", "documents", "raise_exception", "strftime_now"})
"""Names that a request cannot set."""


class Ending(Enum):
    """How a prompt ends: where the assistant speaks, after the last turn, or within it."""

    Assistant = "assistant"
    Turn = "turn"
    LastMessage = "last message"


class TemplateInvalid(Exception):
    """The folder's chat template cannot be read; the message says why."""


class TemplateError(ValueError):
    """The chat template refused the messages, or the model has none: the client's mistake. `param` is the field."""

    def __init__(self, message: str, param: str = "messages") -> None:
        super().__init__(message)
        self.param = param


class ChatTemplate:
    """One model's template, in a sandbox. `render` is safe to call from worker threads."""

    def __init__(self, source: str, specials: Mapping[str, str]) -> None:
        """`specials`: the special tokens that templates know by name (`bos_token`). TemplateInvalid when `source` is
        not jinja2.
        """
        self._environment = environment = BoundedEnvironment()
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
        environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
        environment.measure("tojson", as_json)
        try:
            read = jinja2.meta.find_undeclared_variables(tree := environment.parse(source))
            self._template = environment.bounded(tree)
        except (jinja2.TemplateError, SyntaxError, ValueError) as error:
            raise TemplateInvalid(f"is not jinja2: {str(error)[:WORDS]}") from error
        except (RecursionError, MemoryError) as error:
            raise TemplateInvalid("is nested too deeply") from error
        self._specials = dict(specials)
        self.source = source
        """Its text."""
        self.variables = frozenset(read - OURS - specials.keys())
        """What a request may set (`enable_thinking`)."""
        self.knows_tool_calls = "tool_calls" in source
        """Whether an assistant's tool calls would be written, not silently left out."""
        self.knows_tools = "tools" in read
        """Whether it writes the tools that the model may call."""
        self.knows_reasoning = REASONING.search(source) is not None
        """Whether it reads the reasoning of earlier turns."""

    def render(
        self,
        messages: list[dict[str, Any]],
        variables: Mapping[str, Any],
        ending: Ending = Ending.Assistant,
        tools: Sequence[Any] = (),
    ) -> str:
        """The text up to the `ending`. A template without a place for `tools` and calls gets them as messages' text.
        TemplateError in the template's own words, and for what it would silently leave out.
        """
        if unread := sorted(variables.keys() - self.variables):
            known = ", ".join(sorted(self.variables)) or "none"
            raise TemplateError(
                f"the model's chat template does not read {unread[0][:WORDS]!r}; it reads: {known}",
                param="chat_template_kwargs",
            )
        called = any("tool_calls" in turn for turn in messages)
        if ending is Ending.LastMessage and messages and "tool_calls" in messages[-1]:
            message = "continue_final_message goes on with text, and the last message has tool_calls"
            raise TemplateError(message, param="continue_final_message")
        if not self.knows_tools and (tools or (called and not self.knows_tool_calls)):
            messages, tools = without_tools(messages, tools), ()
        for at, turn in enumerate(messages):
            if "tool_calls" in turn and not self.knows_tool_calls:
                raise TemplateError(
                    f"messages[{at}].tool_calls is not supported by this model: its chat template does not write them",
                    param=f"messages[{at}].tool_calls",
                )
        if ending is Ending.LastMessage:
            return self._up_to_last_message(messages, variables, tools)
        return self._rendered(messages, variables, ending is Ending.Assistant, tools)

    def _up_to_last_message(
        self, messages: list[dict[str, Any]], variables: Mapping[str, Any], tools: Sequence[Any]
    ) -> str:
        """What the template writes before the end of the last message's text. The end is marked by a random word, as
        the template may trim the text, or write after it.
        """
        *before, last = messages
        mark = f"\ue004{secrets.token_hex(8)}\ue005"
        written = self._rendered([*before, {**last, "content": last["content"] + mark}], variables, False, tools)
        text, found, _ = written.rpartition(mark)
        if not found:
            message = "the model's chat template does not write the last message, so it cannot be continued"
            raise TemplateError(message, param="continue_final_message")
        return text

    def _rendered(
        self, messages: list[dict[str, Any]], variables: Mapping[str, Any], begin: bool, tools: Sequence[Any]
    ) -> str:
        given = {"tools": list(tools)} if tools else {}
        try:
            known = {**self._specials, **variables, **given, "messages": messages, "add_generation_prompt": begin}
            text = self._environment.written(self._template, known)
            text.encode()  # no half surrogate pairs, which no tokenizer takes
            return text
        except Exception as error:
            # A template is a program that runs on what a client sent: whatever it raises is about that.
            words = str(error) if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {error}"
            raise TemplateError(f"the model's chat template refused the messages: {words[:WORDS]}") from error


def read_template(folder: Path, config: Mapping[str, Any], specials: Mapping[str, str]) -> ChatTemplate | None:
    """The template of a model folder whose tokenizer_config.json holds `config`; None where there is none.
    TemplateInvalid for one that is no jinja2.
    """
    path = folder / "chat_template.jinja"
    try:
        held = read_if_there(path)
        source = config.get("chat_template") if held is None else held.decode()
    except OSError as error:
        raise TemplateInvalid(f"cannot be read: {path.name}: {error.strerror}; copy it again") from error
    except UnicodeDecodeError as error:
        raise TemplateInvalid(f"cannot be read: {error}") from error
    if isinstance(source, list):  # named templates; the one for plain chat is called default
        named = [entry for entry in source if isinstance(entry, dict) and entry.get("name") == "default"]
        source = named[0].get("template") if named else None
    if source is None:
        return None
    if not isinstance(source, str):
        raise TemplateInvalid("is no text")
    return ChatTemplate(source, specials)


def _raise_exception(message: str) -> NoReturn:
    """What chat templates call to refuse a conversation."""
    raise jinja2.TemplateError(message)
