"""Turns of GPT-OSS: messages of channels. `analysis` is reasoning, `final` is text, one to a function is a call.

`<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json
<|message|>{…}<|call|>`. https://cookbook.openai.com/articles/openai-harmony
"""

import re

from graphpod_runtime.front.text.turn.source import NotRead, Reading, Source, marks
from graphpod_runtime.front.text.turn.writer import Writer

MESSAGE = "<|message|>"
ENDS = ("<|end|>", "<|return|>", "<|call|>")
BEGINS = ("<|start|>", "<|channel|>")
MARKS = frozenset((MESSAGE, *ENDS, *BEGINS, "<|constrain|>"))
"""The texts that its tokenizer has as special tokens."""
CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
FUNCTION = re.compile(r"\bto=functions\.([^\s<]{1,256})")
MAX_HEADER = 512
"""Characters."""


def harmony_turn(source: Source, writer: Writer, *, calls: bool) -> Reading[None]:
    """Reads a turn to its end. Calls are text unless `calls`."""
    begun = yield from source.literal(*BEGINS)
    while begun is not None:
        source.record(begun)
        try:
            header, _ = yield from source.short(marks(MESSAGE), MAX_HEADER)
        except NotRead:
            break
        header = begun + header
        function, channel = FUNCTION.search(header), CHANNEL.search(header)
        if function and not calls:
            writer.content(source.given_up())
        source.forget()
        emit = writer.content
        if function and calls:
            writer.call(function[1])
            emit = writer.arguments
        elif channel and channel[1] == "analysis":
            emit = writer.reasoning
        begun = yield from source.until(marks(*ENDS, *BEGINS), emit)
        writer.trim()
        if begun in ENDS:
            yield from source.spaces()
            begun = yield from source.literal(*BEGINS)
    writer.content(source.given_up())
    yield from source.until(marks(), writer.content)
