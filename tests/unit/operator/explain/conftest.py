"""What the tests of explain start from."""

import json
from pathlib import Path

import pytest

from graphpod_operator import cli
from tests.unit.operator.explain.plain import Explain


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Explain:
    """`graphpod explain` over a file with the given text: exit code, what it printed, what it complained of."""

    def explained(text: str, *arguments: str) -> tuple[int, str, str]:
        file = tmp_path / "service.yaml"
        file.write_text(text)
        code = cli.main(["explain", "-f", str(file), *arguments])
        printed = capsys.readouterr()
        return code, printed.out.replace(str(file), "FILE"), printed.err.replace(str(file), "FILE")

    return explained


@pytest.fixture
def model(tmp_path: Path) -> Path:
    config = {
        "architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 36, "hidden_size": 4096, "vocab_size": 151936,
        "intermediate_size": 12288, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "max_position_embeddings": 40960,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return path
