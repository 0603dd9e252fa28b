"""Which formats a model has: by the words of its template, or named; special tokens show where a format needs them."""

from pathlib import Path

import pytest
from tokenizers import AddedToken

from graphpod_runtime.front.text.tokenizer import Tokenizer
from graphpod_runtime.front.text.turn.family import Family

from ..conftest import byte_tokenizer, write_model

TEMPLATES = (
    ("Hermes", "within <tool_call></tool_call> XML tags", "Qwen2.5"),
    ("Qwen3Coder", "<tool_call>\n<function=example>\n<parameter=a>", "Qwen3-Coder"),
    ("Glm4", "{{ '<tool_call>' + tc.name }}<arg_key>{{ k }}</arg_key>", "GLM-4.5"),
    ("Llama3Json", "Environment: ipython {{- '\"parameters\": ' }}", "Llama 3.1"),
    ("Pythonic", "<|python_start|>{{ call }}<|python_end|>", "Llama 4"),
    ("Pythonic", "<function_calls>{{ call }}</function_calls>", "OLMo 3"),
    ("Mistral", "{{ '[TOOL_CALLS]' }}", "Mistral"),
    ("DeepSeekV3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>n\n```json\n", "DeepSeek-R1"),
    ("DeepSeekV31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>n<｜tool▁sep｜>", "DeepSeek-V3.1"),
    ("DeepSeekV32", "<｜DSML｜function_calls>", "DeepSeek-V3.2"),
    ("KimiK2", "<|tool_calls_section_begin|>", "Kimi K2"),
    ("SeedOss", "<seed:tool_call><function=example>", "Seed-OSS"),
    ("MiniMaxM2", "<minimax:tool_call><invoke name=", "MiniMax-M2"),
    ("LongCat", "<longcat_tool_call>", "LongCat"),
    ("Granite", "<|tool_call|>", "Granite 3"),
    ("Jamba", "<tool_calls>[", "Jamba"),
    ("Phi4Mini", "<|tool|>{{ tools }}<|/tool|> functools", "Phi-4-mini"),
)


@pytest.mark.parametrize(("name", "template", "model"), TEMPLATES)
def test_a_template_shows_its_familys_calls(name: str, template: str, model: str) -> None:
    family = Family.of("Auto", "Auto", template, knows_tools=True)
    assert family.calls is not None, model
    assert family.calls.name == name


def test_a_template_without_tools_has_the_default_and_one_with_unknown_calls_none() -> None:
    without = Family.of("Auto", "Auto", "{{ messages }}", knows_tools=False)
    assert without.calls is not None
    assert without.calls.name == "Hermes"
    assert Family.of("Auto", "Auto", "{{ tools }}", knows_tools=True).calls is None


@pytest.mark.parametrize(
    ("template", "name"),
    [("{{ '<think>' }}", "Think"), ("[THINK]", "Mistral"), ("<seed:think>", "SeedOss"), ("{{ messages }}", None)],
)
def test_a_template_shows_its_familys_reasoning(template: str, name: str | None) -> None:
    family = Family.of("Auto", "Auto", template, knows_tools=True)
    assert (family.reasoning.name if family.reasoning else None) == name
    assert family.reasons is (name is not None)


def test_channels_are_both_and_none_is_neither() -> None:
    both = Family.of("Auto", "Auto", "<|start|>assistant<|channel|>analysis<|message|>", knows_tools=True)
    assert (both.harmony_calls, both.harmony_reasoning, both.calls, both.reasoning) == (True, True, None, None)
    none = Family.of("None", "None", "<tool_call><think>", knows_tools=True)
    assert (none.calls, none.reasoning, none.harmony) == (None, None, False)


def test_special_tokens_of_a_format_are_part_of_the_text(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens([AddedToken("<|python_tag|>", special=True)])
    model = write_model(tmp_path / "model")
    tokenizer.save(str(model / "tokenizer.json"))
    ours = Tokenizer(model)
    shown = ours.specials_named(Family.of("Llama3Json", "None", "", knows_tools=True).marks)
    assert shown == {257}
    ids = [257, *ours.encode("é{"), 256]
    for detokenizer, text in ((ours.detokenizer(), "é{"), (ours.detokenizer(shown), "<|python_tag|>é{")):
        assert "".join(detokenizer.feed([id]) for id in ids) + detokenizer.flush() == text
    assert ours.detokenizer(shown).feed(ids) == "<|python_tag|>é{"
