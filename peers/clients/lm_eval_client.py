"""lm-eval on a task of our own: each answer's log-probability, by echo, is what transformers computes."""

import json
import os
from pathlib import Path

import lm_eval
import pytest
from lm_eval.tasks import TaskManager

from .conftest import MODEL

HERE = Path(__file__).parent
NEAR = 2e-3
"""Natural logarithm: float32 on both sides, summed over an answer's tokens."""


def test_scores_are_those_of_transformers(api: str, tmp_path: Path) -> None:
    task = tmp_path / "items.yaml"
    task.write_text((HERE / "items.yaml").read_text().replace("ITEMS", str(HERE / "items.jsonl")))
    found = lm_eval.simple_evaluate(
        model="local-completions",
        model_args={
            "model": MODEL, "base_url": f"{api}/completions", "tokenizer": os.environ["GRAPHPOD_WEIGHTS"],
            "tokenizer_backend": "huggingface", "num_concurrent": 1, "max_retries": 1,
        },
        tasks=["graphpod_items"],
        task_manager=TaskManager(include_path=str(tmp_path)),
        log_samples=True,
        bootstrap_iters=0,
    )  # fmt: skip
    samples = sorted(found["samples"]["graphpod_items"], key=lambda one: one["doc_id"])
    ours = [[float(score) for score, _ in one["filtered_resps"]] for one in samples]
    theirs = json.loads(Path(os.environ["GRAPHPOD_SCORES"]).read_text())
    assert len(ours) == len(theirs) == 6
    for item, expected in zip(ours, theirs, strict=True):
        assert item == pytest.approx(expected, abs=NEAR)
    right = [
        max(range(4), key=scores.__getitem__) == one["doc"]["answer"]
        for scores, one in zip(theirs, samples, strict=True)
    ]
    assert found["results"]["graphpod_items"]["acc,none"] == sum(right) / len(right)
