"""Tools for a model whose chat template has no place for them: in the words and tags of Hermes 2 Pro.

Tools join the system message, calls of earlier turns their text, and a tool's answer is a user's turn. Source: the
model card of NousResearch/Hermes-2-Pro-Llama-3-8B, and Qwen2.5's template, which has the same form.
"""

import json
from collections.abc import Iterable
from typing import Any

Turn = dict[str, Any]

BEFORE = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>"""
AFTER = """</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""


def without_tools(messages: Iterable[Turn], tools: Iterable[Any]) -> list[Turn]:
    """Turns of system, user and assistant that say the same, with `tools` in the first, a system's."""
    written = [_of_calls(turn) if turn.get("tool_calls") else turn for turn in _answers_joined(messages)]
    listed = [json.dumps(tool, ensure_ascii=False) for tool in tools]
    if not listed:
        return written
    prompt = "\n".join((BEFORE, *listed, AFTER))
    if written and written[0]["role"] == "system":
        first, *written = written
        return [{**first, "content": f"{first['content']}\n\n{prompt}"}, *written]
    return [{"role": "system", "content": prompt}, *written]


def _of_calls(turn: Turn) -> Turn:
    calls = [
        f"<tool_call>\n{json.dumps(call['function'], ensure_ascii=False)}\n</tool_call>" for call in turn["tool_calls"]
    ]
    text = "\n".join([*([turn["content"]] if turn["content"] else []), *calls])
    return {**{name: value for name, value in turn.items() if name != "tool_calls"}, "content": text}


def _answers_joined(messages: Iterable[Turn]) -> list[Turn]:
    """A user's turn for each run of tools' turns: templates demand that users and assistants take turns."""
    found: list[Turn] = []
    answering = False
    for turn in messages:
        if turn["role"] != "tool":
            found.append(turn)
            answering = False
            continue
        text = f"<tool_response>\n{turn['content']}\n</tool_response>"
        if answering:
            found[-1] = {"role": "user", "content": f"{found[-1]['content']}\n{text}"}
        else:
            found.append({"role": "user", "content": text})
        answering = True
    return found
