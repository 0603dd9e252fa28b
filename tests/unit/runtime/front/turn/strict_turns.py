"""Turns of every family that call tools: ARGUMENTS stands for those of get_weather, where they are one object."""

CALL = '{"name": "get_weather", "arguments": ARGUMENTS}'
LLAMA = CALL.replace("arguments", "parameters")
DS = "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"
DSML = "｜DSML｜"
HEADER = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"

IN_JSON = {
    "Mistral": ("[TOOL_CALLS]get_weather[ARGS]ARGUMENTS[TOOL_CALLS]now[ARGS]{}",),
    "DeepSeekV3": (
        f"I look.{DS[0]}{DS[1]}function{DS[2]}get_weather\n```json\nARGUMENTS\n```{DS[3]}{DS[4]}",
        f"{DS[0]}{DS[1]}function{DS[2]}now\n```json\n{{}}\n```{DS[3]}\n"
        f"{DS[1]}function{DS[2]}get_weather\n```json\nARGUMENTS\n```{DS[3]}{DS[4]}",
    ),
    "DeepSeekV31": (f"{DS[0]}{DS[1]}get_weather{DS[2]}ARGUMENTS{DS[3]}{DS[1]}now{DS[2]}{{}}{DS[3]}{DS[4]}",),
    "KimiK2": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>ARGUMENTS"
        "<|tool_call_end|><|tool_calls_section_end|>",
    ),
    "LongCat": (f"<longcat_tool_call>\n{CALL}\n</longcat_tool_call>",),
    "Hermes": (
        f"<tool_call>\n{CALL}\n</tool_call>",
        f"I look.\n<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{CALL}\n</tool_call> Done.",
    ),
    "Llama3Json": (
        f"{LLAMA}",
        f" {LLAMA}; {LLAMA}",
        f"I look.<|python_tag|>{LLAMA}",
        f"<|python_tag|>{LLAMA}",
    ),
    "Granite": (f"<|tool_call|>[{CALL}, {CALL}]", f"<function_call> {CALL}"),
    "Jamba": (f"<tool_calls>[\n{CALL}\n]</tool_calls>",),
    "Phi4Mini": (f"functools[{CALL}]",),
    "Harmony": (
        f"{HEADER}ARGUMENTS",
        f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant{HEADER}ARGUMENTS",
    ),
}
"""Turns of each family whose calls have their arguments in one object."""

IN_PARTS = {
    "Pythonic": (
        ('[get_weather(city="Paris", unit="c"), now()]', True),
        ('<|python_start|>[get_weather(city="Paris")]<|python_end|> Done.', True),
        ('<function_calls>now(at=[1])\nget_weather(city="Paris")</function_calls>', True),
        ("[get_weather(city=5)]", False),
        ('[get_weather(unit="c")]', False),
        ('[get_weather(city="Paris", unit="k")]', False),
        ('[get_weather(city="Paris", more=1)]', False),
        ("<|python_start|>[get_weather()]<|python_end|>", False),
        ("[1, 2] are numbers.", False),
    ),
    "Qwen3Coder": (
        (
            "I look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=unit>\n"
            '"c"\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>',
            True,
        ),
        ("<tool_call>\n<function=get_weather>\n</function>\n</tool_call>", False),
        ("<tool_call><function=get_weather><parameter=unit>\n", False),
    ),
    "SeedOss": (
        (
            '<seed:tool_call><function=get_weather><parameter=city>Paris</parameter><parameter=unit>"c"</parameter>'
            "</function></seed:tool_call>",
            True,
        ),
        ('<seed:tool_call><function=get_weather><parameter=city>a</parameter><parameter=unit>"k"', False),
    ),
    "MiniMaxM2": (
        (
            '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n</invoke>\n'
            '<invoke name="now"><parameter name="any">1 < 2</parameter></invoke>\n</minimax:tool_call>',
            True,
        ),
        ('<minimax:tool_call><invoke name="get_weather"><parameter name="town">', False),
    ),
    "Glm4": (
        (
            "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>\n"
            "<tool_call>now</tool_call>",
            True,
        ),
        ("<tool_call>get_weather\n<arg_key>unit</arg_key>", False),
        ("<tool_call>nowhere</tool_call>", False),
    ),
    "DeepSeekV32": (
        (
            f'<{DSML}function_calls>\n<{DSML}invoke name="get_weather">\n<{DSML}parameter name="city" string="true">'
            f'Paris</{DSML}parameter>\n<{DSML}parameter name="unit" string="false">"c"</{DSML}parameter>\n'
            f"</{DSML}invoke>\n</{DSML}function_calls>",
            True,
        ),
        (f'<{DSML}function_calls><{DSML}invoke name="get_weather"><{DSML}parameter name="city" string="false">', False),
    ),
}
"""Turns of each family whose calls have their arguments one by one."""
