"""How model families write calls of tools and reasoning, as data.

A *section* begins with one of its `opens` and holds calls until one of its `closes`. Names of formats are those that
`spec.engine.toolParser` and `spec.engine.reasoningParser` have.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JsonCalls:
    """`{"name": …, "arguments": …}`, several in a list or in a row; `parameters` is read as `arguments`."""


@dataclass(frozen=True, slots=True)
class NamedCalls:
    """A name, then its arguments as JSON: `opens NAME name_ends {…} tails closes`."""

    opens: tuple[str, ...]
    """Texts that begin a call; empty where the name follows directly."""
    name_ends: tuple[str, ...]
    tails: tuple[str, ...] = ()
    """What may follow the arguments."""
    closes: tuple[str, ...] = ()
    json_too: bool = False
    """A section may hold JsonCalls instead."""
    brace_ends_name: bool = False
    """The arguments may follow the name without an end of it."""


@dataclass(frozen=True, slots=True)
class TaggedCalls:
    """A name, then each parameter between tags: `opens NAME name_ends (parameter KEY key_ends VALUE value_end)*
    closes`. A value is text where the tool's schema says so, JSON where it is JSON.
    """

    opens: tuple[str, ...]
    name_ends: tuple[str, ...]
    parameter: str
    key_ends: tuple[str, ...]
    value_end: str
    closes: tuple[str, ...]
    value_open: str = ""
    """What stands between the key's end and the value, with blanks."""
    text_keys: tuple[str, ...] = ()
    """Those of `key_ends` that say that the value is text."""
    json_keys: tuple[str, ...] = ()
    """Those that say that it is JSON."""
    trims: bool = False
    """A line break after the key's end and one before the value's end belong to the tags."""


@dataclass(frozen=True, slots=True)
class PythonCalls:
    """`[f(a=1), g()]`: calls with keyword arguments that are literals."""


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """One family's calls."""

    name: str
    calls: JsonCalls | NamedCalls | TaggedCalls | PythonCalls
    opens: tuple[str, ...]
    closes: tuple[str, ...] = ()
    """Without one a section ends with its calls."""
    bare: str = ""
    """Characters by which an answer may begin with a call, without an opening; then the name must be a tool's."""
    separators: str = ",;"
    """Characters between two calls."""
    short_ids: bool = False
    """Ids of nine letters and digits, which the family's templates demand."""
    source: str = ""
    """Where the form is documented."""

    @property
    def marks(self) -> frozenset[str]:
        """The texts that a tokenizer may have as special tokens."""
        calls = self.calls
        own: tuple[str, ...] = ()
        if isinstance(calls, NamedCalls):
            own = (*calls.opens, *calls.name_ends, *calls.closes)
        elif isinstance(calls, TaggedCalls):
            own = (
                *calls.opens,
                *calls.name_ends,
                calls.parameter,
                *calls.key_ends,
                calls.value_open,
                calls.value_end,
                *calls.closes,
            )
        return frozenset((*self.opens, *self.closes, *own))


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """One family's reasoning: text between two tags at the turn's beginning."""

    name: str
    opens: str
    closes: str
    source: str = ""


DEEPSEEK = ("<｜tool▁calls▁begin｜>",), ("<｜tool▁calls▁end｜>",)
DSML = "｜DSML｜"

TOOL_FORMATS: tuple[ToolFormat, ...] = (
    ToolFormat("Hermes", JsonCalls(), ("<tool_call>",), ("</tool_call>",), source="Qwen2.5, Qwen3, Hermes 2 Pro"),
    ToolFormat("Llama3Json", JsonCalls(), ("<|python_tag|>",), bare="{", source="Llama 3.1 to 3.3"),
    ToolFormat(
        "Mistral",
        NamedCalls((), ("[ARGS]", "[CALL_ID]"), json_too=True, brace_ends_name=True),
        ("[TOOL_CALLS]",),
        short_ids=True,
        source="Mistral 7B v0.3 to Small 3.2, Magistral, Devstral",
    ),
    ToolFormat(
        "Pythonic", PythonCalls(), ("<|python_start|>", "<function_calls>"), ("<|python_end|>", "</function_calls>"),
        bare="[", source="Llama 3.2, Llama 4, OLMo 3",
    ),
    ToolFormat(
        "DeepSeekV3",
        NamedCalls(
            ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>",), ("\n```json\n",), ("```",), ("<｜tool▁call▁end｜>",)
        ),
        *DEEPSEEK,
        source="DeepSeek-V3-0324, DeepSeek-R1-0528",
    ),
    ToolFormat(
        "DeepSeekV31",
        NamedCalls(("<｜tool▁call▁begin｜>",), ("<｜tool▁sep｜>",), closes=("<｜tool▁call▁end｜>",)),
        *DEEPSEEK,
        source="DeepSeek-V3.1",
    ),
    ToolFormat(
        "DeepSeekV32",
        TaggedCalls(
            (f'<{DSML}invoke name="',), ('">',), f'<{DSML}parameter name="', ('" string="true">', '" string="false">'),
            f"</{DSML}parameter>", (f"</{DSML}invoke>",),
            text_keys=('" string="true">',), json_keys=('" string="false">',),
        ),
        (f"<{DSML}function_calls>",),
        (f"</{DSML}function_calls>",),
        source="DeepSeek-V3.2",
    ),
    ToolFormat(
        "KimiK2",
        NamedCalls(("<|tool_call_begin|>",), ("<|tool_call_argument_begin|>",), closes=("<|tool_call_end|>",)),
        ("<|tool_calls_section_begin|>",),
        ("<|tool_calls_section_end|>",),
        source="Kimi K2",
    ),
    ToolFormat(
        "Qwen3Coder",
        TaggedCalls(
            ("<function=",), (">",), "<parameter=", (">",), "</parameter>", ("</function>",), trims=True
        ),
        ("<tool_call>",),
        ("</tool_call>",),
        source="Qwen3-Coder, Qwen3.5",
    ),
    ToolFormat(
        "SeedOss",
        TaggedCalls(
            ("<function=",), (">",), "<parameter=", (">",), "</parameter>", ("</function>",)
        ),
        ("<seed:tool_call>",),
        ("</seed:tool_call>",),
        source="Seed-OSS",
    ),
    ToolFormat(
        "MiniMaxM2",
        TaggedCalls(('<invoke name="',), ('">',), '<parameter name="', ('">',), "</parameter>", ("</invoke>",)),
        ("<minimax:tool_call>",),
        ("</minimax:tool_call>",),
        source="MiniMax-M2",
    ),
    ToolFormat(
        "Glm4",
        TaggedCalls((), ("\n",), "<arg_key>", ("</arg_key>",), "</arg_value>", (), value_open="<arg_value>"),
        ("<tool_call>",),
        ("</tool_call>",),
        source="GLM-4.5 to GLM-4.7",
    ),
    ToolFormat("Granite", JsonCalls(), ("<|tool_call|>", "<function_call>"), source="Granite 3, Granite 20B"),
    ToolFormat("Jamba", JsonCalls(), ("<tool_calls>",), ("</tool_calls>",), source="Jamba 1.5, Hunyuan"),
    ToolFormat("Phi4Mini", JsonCalls(), ("functools",), source="Phi-4-mini"),
    ToolFormat("LongCat", JsonCalls(), ("<longcat_tool_call>",), ("</longcat_tool_call>",), source="LongCat-Flash"),
)  # fmt: skip

REASONING_FORMATS: tuple[ReasoningFormat, ...] = (
    ReasoningFormat("Think", "<think>", "</think>", "Qwen3, DeepSeek-R1, GLM-4.5, Kimi K2, MiniMax-M2"),
    ReasoningFormat("Mistral", "[THINK]", "[/THINK]", "Magistral"),
    ReasoningFormat("SeedOss", "<seed:think>", "</seed:think>", "Seed-OSS"),
)

HARMONY = "Harmony"
"""The format of GPT-OSS, in both tables: channels instead of tags."""
