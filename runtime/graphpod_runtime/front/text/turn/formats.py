"""How model families write calls of tools and reasoning, as data.

A *section* begins with one of its `opens` and holds calls until one of its `closes`. Names of formats are those that
`spec.engine.toolParser` and `spec.engine.reasoningParser` have.
"""

from dataclasses import dataclass, fields


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

    lines: tuple[str, ...] = ()
    """Those of the section's `opens` after which calls stand in lines, without brackets."""


@dataclass(frozen=True, slots=True)
class Strict:
    """How a grammar writes the calls of a section whose arguments are one JSON object: `CALL (between CALL)*`, each
    call `before ARGUMENTS after`, with blanks around it. NAME stands for the tool's name, NUMBER for one of at most
    three digits.
    """

    before: str
    after: str = ""
    between: str | None = None
    """None: a section has one call."""
    listed: bool = False
    """The calls stand in brackets, with commas between them."""


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """One family's calls."""

    name: str
    calls: JsonCalls | NamedCalls | TaggedCalls | PythonCalls
    opens: tuple[str, ...]
    closes: tuple[str, ...] = ()
    """Without one a section ends with its calls."""
    signs: tuple[tuple[str, ...], ...] = ()
    """A chat template that has all texts of one of these belongs to the family."""
    bare: str = ""
    """Characters by which an answer may begin with a call, without an opening; then the name must be a tool's."""
    separators: str = ",;"
    """Characters between two calls."""
    short_ids: bool = False
    """Ids of nine letters and digits, which the family's templates demand."""
    strict: tuple[Strict, ...] = ()
    """The forms of a section that the family's templates write, for calls that a grammar holds to their schemas. The
    forms of PythonCalls and TaggedCalls follow from them."""

    @property
    def marks(self) -> frozenset[str]:
        """The texts that a tokenizer may have as special tokens."""
        found = {*self.opens, *self.closes}
        for field in fields(self.calls):
            value = getattr(self.calls, field.name)
            found.update((value,) if isinstance(value, str) else value if isinstance(value, tuple) else ())
        return frozenset(found - {""})


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """One family's reasoning: text between two tags at the turn's beginning."""

    name: str
    opens: str
    closes: str


ARGUMENTS = '{"name": "NAME", "arguments": '
DEEPSEEK = ("<｜tool▁calls▁begin｜>",), ("<｜tool▁calls▁end｜>",)
DSML = "｜DSML｜"
FUNCTION = ("<function=",), (">",), "<parameter=", (">",), "</parameter>", ("</function>",)

# The first row whose signs a template has is its family's: rows with more signs come first.
TOOL_FORMATS: tuple[ToolFormat, ...] = (
    # Mistral 7B v0.3 to Small 3.2, Magistral, Devstral
    ToolFormat(
        "Mistral",
        NamedCalls((), ("[ARGS]", "[CALL_ID]"), json_too=True, brace_ends_name=True),
        ("[TOOL_CALLS]",),
        signs=(("[TOOL_CALLS]",),),
        strict=(Strict("NAME[ARGS]"), Strict(ARGUMENTS, "}", listed=True)),
        short_ids=True,
    ),
    # DeepSeek-V3.2
    ToolFormat(
        "DeepSeekV32",
        TaggedCalls(
            (f'<{DSML}invoke name="',),
            ('">',),
            f'<{DSML}parameter name="',
            ('" string="true">', '" string="false">'),
            f"</{DSML}parameter>",
            (f"</{DSML}invoke>",),
            text_keys=('" string="true">',),
            json_keys=('" string="false">',),
        ),
        (f"<{DSML}function_calls>",),
        (f"</{DSML}function_calls>",),
        signs=((DSML,),),
    ),
    # DeepSeek-V3-0324, DeepSeek-R1-0528
    ToolFormat(
        "DeepSeekV3",
        NamedCalls(
            ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>",), ("\n```json\n",), ("```",), ("<｜tool▁call▁end｜>",)
        ),
        *DEEPSEEK,
        signs=(("<｜tool▁calls▁begin｜>", "```json"),),
        strict=(Strict("<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n", "\n```<｜tool▁call▁end｜>", ""),),
    ),
    # DeepSeek-V3.1
    ToolFormat(
        "DeepSeekV31",
        NamedCalls(("<｜tool▁call▁begin｜>",), ("<｜tool▁sep｜>",), closes=("<｜tool▁call▁end｜>",)),
        *DEEPSEEK,
        signs=(("<｜tool▁calls▁begin｜>",),),
        strict=(Strict("<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>", "<｜tool▁call▁end｜>", ""),),
    ),
    # Kimi K2
    ToolFormat(
        "KimiK2",
        NamedCalls(("<|tool_call_begin|>",), ("<|tool_call_argument_begin|>",), closes=("<|tool_call_end|>",)),
        ("<|tool_calls_section_begin|>",),
        ("<|tool_calls_section_end|>",),
        signs=(("<|tool_calls_section_begin|>",),),
        strict=(
            Strict("<|tool_call_begin|>functions.NAME:NUMBER<|tool_call_argument_begin|>", "<|tool_call_end|>", ""),
        ),
    ),
    # GLM-4.5 to GLM-4.7
    ToolFormat(
        "Glm4",
        TaggedCalls((), ("\n",), "<arg_key>", ("</arg_key>",), "</arg_value>", (), value_open="<arg_value>"),
        ("<tool_call>",),
        ("</tool_call>",),
        signs=(("<tool_call>", "<arg_key>"),),
    ),
    # Seed-OSS
    ToolFormat(
        "SeedOss",
        TaggedCalls(*FUNCTION),
        ("<seed:tool_call>",),
        ("</seed:tool_call>",),
        signs=(("<seed:tool_call>",),),
    ),
    # MiniMax-M2
    ToolFormat(
        "MiniMaxM2",
        TaggedCalls(('<invoke name="',), ('">',), '<parameter name="', ('">',), "</parameter>", ("</invoke>",)),
        ("<minimax:tool_call>",),
        ("</minimax:tool_call>",),
        signs=(("<minimax:tool_call>",),),
    ),
    # Qwen3-Coder, Qwen3.5
    ToolFormat(
        "Qwen3Coder",
        TaggedCalls(*FUNCTION, trims=True),
        ("<tool_call>",),
        ("</tool_call>",),
        signs=(("<tool_call>", "<function="),),
    ),
    # LongCat-Flash
    ToolFormat(
        "LongCat",
        JsonCalls(),
        ("<longcat_tool_call>",),
        ("</longcat_tool_call>",),
        signs=(("<longcat_tool_call>",),),
        strict=(Strict(ARGUMENTS, "}"),),
    ),
    # Qwen2.5, Qwen3, Hermes 2 Pro; models whose template has no place for tools
    ToolFormat(
        "Hermes",
        JsonCalls(),
        ("<tool_call>",),
        ("</tool_call>",),
        signs=(("<tool_call>",),),
        strict=(Strict(ARGUMENTS, "}"),),
    ),
    # Llama 4, OLMo 3
    ToolFormat(
        "Pythonic",
        PythonCalls(("<function_calls>",)),
        ("<|python_start|>", "<function_calls>"),
        ("<|python_end|>", "</function_calls>"),
        signs=(("<|python_start|>",), ("<function_calls>",)),
        bare="[",
    ),
    # Llama 3.1 to 3.3
    ToolFormat(
        "Llama3Json",
        JsonCalls(),
        ("<|python_tag|>",),
        signs=(("ipython", '"parameters"'),),
        strict=(Strict('{"name": "NAME", "parameters": ', "}", ";"),),
        bare="{",
    ),
    # Granite 3, Granite 20B
    ToolFormat(
        "Granite",
        JsonCalls(),
        ("<|tool_call|>", "<function_call>"),
        signs=(("<|tool_call|>",), ("<function_call>",)),
        strict=(Strict(ARGUMENTS, "}", listed=True), Strict(ARGUMENTS, "}")),
    ),
    # Jamba 1.5, Hunyuan
    ToolFormat(
        "Jamba",
        JsonCalls(),
        ("<tool_calls>",),
        ("</tool_calls>",),
        signs=(("<tool_calls>",),),
        strict=(Strict(ARGUMENTS, "}", listed=True),),
    ),
    # Phi-4-mini
    ToolFormat(
        "Phi4Mini",
        JsonCalls(),
        ("functools",),
        signs=(("<|tool|>", "functools"),),
        strict=(Strict(ARGUMENTS, "}", listed=True),),
    ),
)

REASONING_FORMATS: tuple[ReasoningFormat, ...] = (
    # Magistral
    ReasoningFormat("Mistral", "[THINK]", "[/THINK]"),
    # Seed-OSS
    ReasoningFormat("SeedOss", "<seed:think>", "</seed:think>"),
    # Qwen3, DeepSeek-R1, GLM-4.5, Kimi K2, MiniMax-M2
    ReasoningFormat("Think", "<think>", "</think>"),
)

HARMONY = "Harmony"
"""The format of GPT-OSS, in both tables: channels instead of tags."""
HARMONY_SIGN = "<|channel|>"
