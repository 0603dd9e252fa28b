"""Models that transformers computes, as the rules see them before anything is loaded."""

import json
from typing import Any

import pytest

from graphpod_policy import (
    CompileMode,
    Facts,
    Features,
    GraphRequest,
    ModelFacts,
    ModelPath,
    ModelUnreadable,
    Phase,
    Policy,
    refine,
    resolve,
)
from graphpod_policy.enums import Device
from graphpod_policy.model.families import families, transformers_version
from truth.families.page import CPU, PAGE, _row, page_of
from truth.families.variants import VARIANTS

STABLELM: dict[str, Any] = {
    "architectures": ["StableLmForCausalLM"],
    "model_type": "stablelm",
    "hidden_size": 3072,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32064,
    "max_position_embeddings": 4096,
}


def test_the_table_has_every_causal_model_type_of_its_version_and_a_reason_for_each_refusal() -> None:
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    assert transformers.__version__ == transformers_version()
    assert families().keys() == MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys()
    for family in families().values():
        assert family.architecture == MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[family.model_type]
        assert bool(family.prefill) is bool(family.decode) is not bool(family.refused), family.model_type
        assert bool(family.because) is bool(family.refused), family.model_type


def test_table_and_page_are_those_of_the_recorded_run_in_which_nothing_is_wrong() -> None:
    whole = json.loads(CPU.read_bytes())
    assert PAGE.read_text() == page_of(whole)
    assert not [name for name, trial in whole["families"].items() if trial["outcome"] == "Wrong"]
    assert {trial["outcome"] for trial in whole["variants"].values()} == {"Equal"}
    assert whole["variants"].keys() == VARIANTS.keys()
    assert len({trial["model_type"] for trial in whole["variants"].values()}) >= 30
    for name, trial in whole["families"].items():
        row = _row(trial)
        assert (families()[name].prefill, families()[name].refused) == (row.get("prefill", ""), row.get("refused", ""))


def test_sizes_that_a_config_json_leaves_out_are_the_familys() -> None:
    facts = ModelFacts.of(STABLELM)
    assert (facts.path, facts.not_built) == (ModelPath.Transformers, None)
    assert (facts.kv_heads, facts.head_dim, facts.intermediate, facts.max_position) == (8, 96, 6912, 4096)
    gpt2 = ModelFacts.of({"model_type": "gpt2", "n_embd": 96, "n_head": 6, "n_positions": 64})
    assert (gpt2.hidden, gpt2.heads, gpt2.head_dim, gpt2.layers, gpt2.max_position) == (96, 6, 16, 12, 64)


def test_positions_end_where_frequencies_would_depend_on_other_requests() -> None:
    rope = {"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}
    changes = {"max_position_embeddings": 131072, "original_max_position_embeddings": 4096, "rope_scaling": rope}
    assert ModelFacts.of(STABLELM | changes).max_position == 4096


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"auto_map": {"AutoModelForCausalLM": "modeling_stablelm.StableLmForCausalLM"}}, "auto_map names code"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config is not built for StableLmForCausalLM"),
        ({"attention_multiplier": 0}, "attention_multiplier=0 is not built"),
        (
            {"architectures": ["StableLmForSequenceClassification"], "intermediate_size": 8192},
            "'StableLmForSequenceClassification' is unknown",
        ),
        ({"model_type": "mamba", "architectures": ["MambaForCausalLM"], "num_heads": 4}, "NoAttention"),
    ],
)
def test_what_cannot_be_computed_is_refused_before_a_download(changes: dict[str, Any], words: str) -> None:
    not_built = ModelFacts.of(STABLELM | changes).not_built
    assert not_built is not None
    assert words in not_built


@pytest.mark.parametrize("uncapturable", ["", "reads values on the host"])
def test_graphs_hold_modules_as_they_run_and_nothing_is_compiled(uncapturable: str) -> None:
    model = ModelFacts(
        "StableLmForCausalLM", 32, 3072, 8192, 32, 8, 96, 32064, path=ModelPath.Transformers, uncapturable=uncapturable
    )
    planned = resolve(Features(device=Device.Cuda, gpus=1), GraphRequest(prefill=Policy.Piecewise))
    assert planned.compile is CompileMode.Inductor
    plan = refine(planned, Facts(model=model))
    policies = {phase: plan.phases[phase].planned for phase in Phase}
    graphs = {Phase.Prefill: Policy.Breakable, Phase.Decode: Policy.Full}
    assert policies == (dict.fromkeys(Phase, Policy.Disabled) if uncapturable else graphs)
    assert plan.compile is CompileMode.Nothing
    assert {decision.rule for decision in plan.decisions} >= {"TransformersPath"} | (
        {"HostRead"} if uncapturable else set()
    )


def test_every_type_that_runs_is_read_by_its_own_defaults() -> None:
    """Some have a size for each layer, in a list or one by one."""
    from transformers import CONFIG_MAPPING

    unreadable = {}
    for family in families().values():
        if family.refused:
            continue
        config = json.loads(CONFIG_MAPPING[family.model_type]().to_json_string(use_diff=False))
        try:
            ModelFacts.of(config | {"architectures": [family.architecture]})
        except ModelUnreadable as error:
            unreadable[family.model_type] = str(error)
    # Its defaults are of a mixture that chooses no experts, which transformers does not run either.
    assert unreadable == {"deepseek_v2": "field 'num_experts_per_tok' is missing"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"intermediate_size": [96, 128, 96]}, 128),
        ({"intermediate_size": 96, "per_layer_config": {"1": {"intermediate_size": 160}, "2": {"head_dim": 8}}}, 160),
        ({"intermediate_size": 96, "per_layer_config": ["no object"]}, 96),
    ],
)
def test_of_layers_with_sizes_of_their_own_the_largest_counts(changes: dict[str, Any], said: int) -> None:
    assert ModelFacts.of({**STABLELM, **changes}).intermediate == said


@pytest.mark.parametrize("size", [[96, "wide"], [], "wide", [[96]]])
def test_a_size_that_is_no_number_is_named(size: Any) -> None:
    with pytest.raises(ModelUnreadable, match="intermediate: expected a number of at least 1"):
        ModelFacts.of({**STABLELM, "intermediate_size": size})
