"""Engines over two GPUs, one after the other in one process: each ends, with its graphs and its communicator, and the
next one begins. Only the first sums by the memory of GPUs; in single precision the next one's tokens are the same ones.
Skipped on a machine with one."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.front_streams.model import write_tokenizer
from tests.unit.runtime.conftest import write_llama

pytestmark = pytest.mark.gpu
SECONDS = 240
VOCABULARY = 1008
ENGINES = """
import sys
from graphpod_runtime import Engine, SamplingOptions

for _ in range(2):
    with Engine(sys.argv[1], dtype="float32", max_batch=4, max_model_len=256, **{sys.argv[2]: 2}) as engine:
        print(engine.generate([5, 6, 7], SamplingOptions(max_tokens=8, temperature=0.0)).token_ids, flush=True)
"""


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("parallel", ["tensor_parallel", "pipeline_parallel"])
def test_the_next_engine_of_a_process_says_the_same(tmp_path: Path, parallel: str) -> None:
    write_tokenizer(write_llama(tmp_path, heads=4, kv_heads=2, vocab_size=VOCABULARY), VOCABULARY)
    words = [sys.executable, "-c", ENGINES, str(tmp_path), parallel]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == second
