"""Turns as models of each family write them, and what they are. Sources: the families' chat templates and pages, and
the cases of vLLM 0.33.0's tests/tool_parsers and tests/reasoning, restated.
"""

from dataclasses import dataclass

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "on": {}}}
TOOLS = {"get_weather": WEATHER, "now": {"type": "object", "properties": {}}, "register_user": {"type": "object"}}

Calls = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Example:
    """What a model wrote, and the calls (name and JSON) and text of it."""

    format: str
    text: str
    calls: Calls
    content: str = ""
    reasoning: str = ""


PARIS = '{"city": "Paris"}'
ONE: Calls = (("get_weather", PARIS),)
TWO: Calls = (*ONE, ("now", "{}"))

DS = "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"

TOOL_EXAMPLES = (
    # The template of Qwen2.5 and Qwen3; test_hermes_tool_parser.py.
    Example("Hermes", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>', ONE),
    Example(
        "Hermes",
        'Let me look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        TWO,
        "Let me look.",
    ),
    Example("Hermes", '<tool_call>{"arguments": {"city": "Paris"}, "name": "get_weather"}</tool_call>', ONE),
    Example("Hermes", '<tool_call>{"name": "now"}</tool_call>', (("now", "{}"),)),
    Example("Hermes", '<tool_call>{"name": "now", "arguments": null}</tool_call> ok', (("now", "{}"),), "ok"),
    Example("Hermes", '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}</tool_call>', ONE),
    Example(
        "Hermes",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "</tool_call> {\\"}"}}</tool_call>done',
        (("get_weather", '{"city": "</tool_call> {\\"}"}'),),
        "done",
    ),
    Example("Hermes", '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}', ONE),
    # Llama 3.1's page on prompt formats; test_llama3_json_tool_parser.py.
    Example("Llama3Json", '{"name": "get_weather", "parameters": {"city": "Paris"}}', ONE),
    Example(
        "Llama3Json",
        '<|python_tag|>{"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}}; '
        '{"name": "now", "parameters": {}}',
        TWO,
    ),
    # The templates of Mistral 7B v0.3 and of Small 3.2; tests/parser/mistral.
    Example("Mistral", '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}]', ONE),
    Example(
        "Mistral",
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "now", "arguments": {}}]',
        TWO,
    ),
    Example("Mistral", 'Sure.[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]now[ARGS]{}', TWO, "Sure."),
    Example("Mistral", '[TOOL_CALLS]get_weather{"city": "Paris"}', ONE),
    Example("Mistral", '[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{"city": "Paris"}', ONE),
    # Llama 3.2's page on prompt formats; test_pythonic_tool_parser.py, test_llama4_pythonic_tool_parser.py,
    # test_olmo3_tool_parser.py.
    Example("Pythonic", "[get_weather(city='Paris'), now()]", TWO),
    Example("Pythonic", "<|python_start|>[get_weather(city='Paris')]<|python_end|>", ONE),
    Example("Pythonic", "<function_calls>get_weather(city=\"Paris\")\nnow()</function_calls>", TWO),
    Example(
        "Pythonic",
        "[register_user(name='John Doe', age=37, address={'city': 'San Francisco', 'state': 'CA'}, role=None, "
        "passed_test=True, aliases=['John', 'Johnny'], ratio=-1.5e3)]",
        (
            (
                "register_user",
                '{"name": "John Doe", "age": 37, "address": {"city": "San Francisco", "state": "CA"}, "role": null, '
                '"passed_test": true, "aliases": ["John", "Johnny"], "ratio": -1500.0}',
            ),
        ),
    ),
    Example(
        "Pythonic",
        r"[get_weather(city='Martha\'s Vineyard', metric='\"cool units\"')]",
        (("get_weather", '{"city": "Martha\'s Vineyard", "metric": "\\"cool units\\""}'),),
    ),
    # A grammar of strict calls writes values as JSON.
    Example(
        "Pythonic",
        r'''[get_weather(city="\ud83d\ude00 a\/b", on=[true, null])]''',
        (("get_weather", '{"city": "😀 a/b", "on": [true, null]}'),),
    ),
    # The templates of DeepSeek-V3-0324, R1-0528 and V3.1; test_deepseekv3_tool_parser.py, test_deepseekv31….
    Example(
        "DeepSeekV3",
        f'I look.{DS[0]}{DS[1]}function{DS[2]}get_weather\n```json\n{{"city": "Paris"}}\n```{DS[3]}\n'
        f"{DS[1]}function{DS[2]}now\n```json\n{{}}\n```{DS[3]}{DS[4]}",
        TWO,
        "I look.",
    ),
    Example(
        "DeepSeekV31",
        f'{DS[0]}{DS[1]}get_weather{DS[2]}{{"city": "Paris"}}{DS[3]}{DS[1]}now{DS[2]}{{}}{DS[3]}{DS[4]}',
        TWO,
    ),
    Example(
        "DeepSeekV32",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
        '<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="days" string="false">5</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        (("get_weather", '{"city": "Paris", "days": 5}'),),
    ),
    # Kimi K2's page on tool calls; test_kimi_k2_tool_parser.py.
    Example(
        "KimiK2",
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>'
        '{"city": "Paris"}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}'
        "<|tool_call_end|><|tool_calls_section_end|>",
        TWO,
    ),
    # Qwen3-Coder's template; test_qwen3coder_tool_parser.py.
    Example(
        "Qwen3Coder",
        "I look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n"
        "</parameter>\n<parameter=on>\nTrue\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n"
        "</function>\n</tool_call>",
        (("get_weather", '{"city": "Paris", "days": 3, "on": true}'), ("now", "{}")),
        "I look.",
    ),
    Example(
        "Qwen3Coder",
        '<tool_call>\n<function=get_weather>\n<parameter=city>\n\n"Rue" <b>\n5\n\n</parameter>\n</function>\n'
        "</tool_call>",
        (("get_weather", '{"city": "\\n\\"Rue\\" <b>\\n5\\n"}'),),
    ),
    Example(
        "SeedOss",
        "<seed:tool_call><function=get_weather><parameter=city>Paris</parameter></function></seed:tool_call>",
        ONE,
    ),
    Example(
        "MiniMaxM2",
        '<minimax:tool_call><invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n</invoke>'
        '<invoke name="now"></invoke></minimax:tool_call>',
        TWO,
    ),
    # The templates of GLM-4.5 and 4.7; test_glm4_moe_tool_parser.py, test_glm47_moe_tool_parser.py.
    Example(
        "Glm4",
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>\n"
        "<tool_call>now</tool_call>",
        TWO,
    ),
    Example(
        "Glm4",
        "<tool_call>get_weather<arg_key>days</arg_key><arg_value>[1, 2]</arg_value></tool_call>",
        (("get_weather", '{"days": [1, 2]}'),),
    ),
    # test_granite_tool_parser.py, test_jamba_tool_parser.py, test_phi4mini_tool_parser.py, test_longcat….
    Example("Granite", '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]', ONE),
    Example("Granite", '<function_call> {"name": "get_weather", "arguments": {"city": "Paris"}}', ONE),
    Example("Jamba", '<tool_calls>[\n    {"name": "get_weather", "arguments": {"city": "Paris"}}\n]</tool_calls>', ONE),
    Example("Phi4Mini", 'functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]', ONE),
    Example(
        "LongCat", '<longcat_tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</longcat_tool_call>', ONE
    ),
    # OpenAI's cookbook on Harmony; tests/parser of Harmony.
    Example(
        "Harmony",
        "<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>',
        ONE,
        reasoning="Need weather.",
    ),
    Example(
        "Harmony",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Paris"}',
        ONE,
        "I look.",
        "Hm.",
    ),
    Example(
        "Harmony",
        "<|channel|>analysis<|message|>1+1<|end|><|start|>assistant<|channel|>final<|message|>2",
        (),
        "2",
        "1+1",
    ),
)  # fmt: skip

TEXTS = (
    ("Hermes", "no call"),
    ("Hermes", "<tool_call>not json</tool_call>"),
    ("Hermes", '<tool_call>{"name": 5, "arguments": {}}</tool_call>'),
    ("Hermes", '<tool_call>{"name": "", "arguments": {}}</tool_call>'),
    ("Hermes", '<tool_call>{"name": "now", "arguments": [1]}</tool_call>'),
    ("Hermes", '<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>'),
    ("Hermes", '<tool_call>{"name": "no'),
    ("Hermes", "a < b, <tool, <tool_call"),
    ("Hermes", " \n"),
    ("Llama3Json", '{"name": "unknown", "parameters": {}}'),
    ("Llama3Json", '{"answer": 42}'),
    ("Llama3Json", 'Then {"name": "now", "parameters": {}}'),
    ("Mistral", "[TOOL_CALLS] what is {this}"),
    ("Pythonic", "[1] says so"),
    ("Pythonic", "[now(1)]"),
    ("Pythonic", "[unknown(a=1)]"),
    ("Pythonic", "[now(a=open('x'))]"),
    ("Pythonic", "[now(a=1e999)]"),
    ("Pythonic", "[now(a='\\ud800')]"),
    ("DeepSeekV3", "<｜tool▁calls▁begin｜>nothing<｜tool▁calls▁end｜>"),
    ("Qwen3Coder", "<tool_call>\nwords"),
    ("Glm4", "<tool_call>two words\n</tool_call>"),
)
"""What is no call stays as it was written, to the last blank."""
