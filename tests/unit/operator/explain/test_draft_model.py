"""A draft model in `explain`: what it takes, and which ones are refused."""

import json
from pathlib import Path

from tests.unit.operator.explain.plain import PLAIN, Explain

SHAPES = Path(__file__).parents[4] / "benchmarks" / "shapes"
DRAFTED = (
    PLAIN
    + "  engine:\n    speculative: {method: DraftModel, draftModel: 'pvc://weights/small'}\n"
    + "  resources:\n    limits:\n      nvidia.com/gpu: 1\n"
)
MODEL = ("--node", "gpu=H100", "--model-config", str(SHAPES / "qwen3-8b" / "config.json"))


def test_its_weights_and_its_part_of_the_cache_are_counted(run: Explain) -> None:
    code, text, _ = run(DRAFTED, *MODEL, "--draft-config", str(SHAPES / "qwen3-0.6b" / "config.json"))
    assert code == 0
    assert "the draft model takes 1.1 GiB for its weights, and 44% of the KV cache" in text
    alone, unknown, _ = run(DRAFTED, *MODEL)
    assert alone == 0
    assert "memory of the draft model is not counted" in unknown


def test_one_of_another_vocabulary_or_shorter_context_is_refused_with_both_numbers(
    run: Explain, tmp_path: Path
) -> None:
    code, text, _ = run(DRAFTED, *MODEL, "--draft-config", str(SHAPES / "gemma-3-1b" / "config.json"))
    assert code == 4
    assert "a vocabulary of 262144 tokens, and demo one of 151936" in " ".join(text.split())
    shorter = json.loads((SHAPES / "qwen3-0.6b" / "config.json").read_text()) | {"max_position_embeddings": 4096}
    (tmp_path / "config.json").write_text(json.dumps(shorter))
    code, text, _ = run(DRAFTED, *MODEL, "--draft-config", str(tmp_path / "config.json"))
    assert code == 4
    assert "it has 4096 positions, and requests may have 40960 tokens" in " ".join(text.split())


def test_its_file_needs_the_models_own(run: Explain) -> None:
    code, _, complained = run(DRAFTED, "--draft-config", str(SHAPES / "qwen3-0.6b" / "config.json"))
    assert (code, complained[:24]) == (2, "error: --draft-config: g")


def test_another_claim_than_the_models_is_refused(run: Explain) -> None:
    code, text, _ = run(DRAFTED.replace("weights/small", "others/small"))
    assert code == 4
    assert "draftModel: a claim other than that of spec.model.uri" in " ".join(text.split())


def test_a_uri_that_is_none_is_refused_by_its_field(run: Explain) -> None:
    code, _, complained = run(DRAFTED.replace("pvc://weights/small", "http://weights"))
    assert code == 2
    assert "spec.engine.speculative.draftModel must begin with one of pvc://" in complained


def test_a_config_without_a_draft_model_is_told_of(run: Explain) -> None:
    _, text, _ = run(PLAIN, *MODEL, "--draft-config", str(SHAPES / "qwen3-0.6b" / "config.json"))
    assert "the service has no draft model: --draft-config is not used" in " ".join(text.split())


def test_a_layer_of_the_models_own_checkpoint_is_counted_and_needs_no_file(run: Explain, tmp_path: Path) -> None:
    by_layer = DRAFTED.replace("method: DraftModel, draftModel: 'pvc://weights/small'", "method: Mtp")
    config = json.loads((SHAPES / "qwen3-8b" / "config.json").read_text())
    mimo = config | {"architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps(mimo))
    given = ("--node", "gpu=H100", "--model-config", str(tmp_path / "config.json"))
    code, text, _ = run(by_layer, *given)
    assert code == 0
    # One layer of 36, and what joins a token and a state.
    assert "the draft head takes 432 MiB for its weights, and 3% of the KV cache" in text
    code, text, _ = run(by_layer)
    assert code == 0
    assert "layers that draft is not counted. With --model-config it is" in " ".join(text.split())
    code, text, _ = run(by_layer, *MODEL)
    assert code == 4
    assert "method: Mtp: demo: MTP layers of 'Qwen3ForCausalLM' are not built" in " ".join(text.split())
