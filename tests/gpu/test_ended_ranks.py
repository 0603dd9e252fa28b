"""Engines over two GPUs whose other rank is ended while this one's kernels wait for it: the process goes on, `close`
returns, and the next engine serves. Skipped on a machine with one."""

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
PROGRAM = """
import faulthandler, os, signal, sys, threading, time
from pathlib import Path
from graphpod_runtime import Engine, EngineFailed, SamplingOptions

def other_ranks():
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            if b"ranks.process" in Path(f"/proc/{pid}/cmdline").read_bytes()]

folder, parallel, ends = sys.argv[1], sys.argv[2], sys.argv[3:]
faulthandler.dump_traceback_later(200, exit=True)
for end in ends:
    engine = Engine(folder, max_batch=4, max_model_len=256, **{parallel: 2})
    others = other_ranks()
    whom = {"interrupt": (os.getpid(), signal.SIGINT), "death": (others[0], signal.SIGKILL)}
    threading.Timer(0.5, os.kill, whom[end]).start()
    try:
        while True:
            engine.generate([5, 6, 7], SamplingOptions(max_tokens=200, temperature=0.0))
    except (KeyboardInterrupt, EngineFailed) as error:
        print(end, type(error).__name__, flush=True)
    before = time.monotonic()
    engine.close()
    print("closed", time.monotonic() - before < 8, len(other_ranks()), flush=True)
with Engine(folder, max_batch=4, max_model_len=256, **{parallel: 2}) as engine:
    print(len(engine.generate([5, 6, 7], SamplingOptions(max_tokens=8, temperature=0.0)).token_ids))
"""


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("ends", [("interrupt", "death"), ("death", "interrupt")])
@pytest.mark.parametrize("parallel", ["tensor_parallel", "pipeline_parallel"])
def test_an_end_in_a_pass_leaves_a_process_that_goes_on(tmp_path: Path, parallel: str, ends: tuple[str, str]) -> None:
    """The first engine of a process waits in our own kernels, later ones in NCCL's."""
    write_tokenizer(write_llama(tmp_path, heads=4, kv_heads=2, vocab_size=VOCABULARY), VOCABULARY)
    words = [sys.executable, "-c", PROGRAM, str(tmp_path), parallel, *ends]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    says = {"interrupt": "interrupt KeyboardInterrupt", "death": "death EngineFailed"}
    lines = [line for end in ends for line in (says[end], "closed True 0")]
    assert done.stdout.splitlines() == [*lines, "8"]
