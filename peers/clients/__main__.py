"""`python -m peers.clients [pytest's options]`: starts the engine and runs the tests of this folder on it.

The tests run in `.venv-clients`, where the clients are and nothing of graphpod is. Their environment has the engine's
address, and the scores that transformers gives for the items of lm-eval's task.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from demo.weights import model_folder
from graphpod_runtime.bench.serve.drive.own_engine import OwnEngine
from peers.__main__ import ENGINE
from peers.run import REPOSITORY

NAME = "smollm2"
FOLDER = Path(__file__).parent
ITEMS = FOLDER / "items.jsonl"
SECONDS = 3000.0


def main(options: list[str]) -> int:
    """pytest's exit status."""
    weights = model_folder(lambda line: print(line, file=sys.stderr))
    with (
        tempfile.TemporaryDirectory(prefix="graphpod-clients-") as folder,
        OwnEngine(["serve", "--model", str(weights), "--name", NAME, *ENGINE]) as engine,
    ):
        scores = Path(folder) / "scores.json"
        scores.write_text(json.dumps(_scores(weights)))
        engine.ready()
        environment = os.environ | {
            "GRAPHPOD_URL": engine.url,
            "GRAPHPOD_WEIGHTS": str(weights),
            "GRAPHPOD_SCORES": str(scores),
            "OPENAI_API_KEY": "none",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # it would fetch prices from the internet
            "HF_HUB_OFFLINE": "1",
            "LLAMA_INDEX_CACHE_DIR": folder,
        }
        command = [str(REPOSITORY / ".venv-clients" / "bin" / "python"), "-m", "pytest", "-q", "--durations", "5"]
        return subprocess.run(
            [*command, "-p", "no:cacheprovider", "-o", "python_files=*_client.py", str(FOLDER), *options],
            env=environment,
            timeout=SECONDS,
        ).returncode


def _scores(weights: Path) -> list[list[float]]:
    """The log-probability of each choice after its question, by transformers in float32."""
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(weights, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(weights, local_files_only=True, dtype=torch.float32).eval()
    found = []
    for line in ITEMS.read_text().splitlines():
        item = json.loads(line)
        context = tokenizer.encode(item["question"])
        found.append([_score(model, context, tokenizer.encode(item["question"] + one)) for one in item["choices"]])
    return found


def _score(model: torch.nn.Module, context: list[int], whole: list[int]) -> float:
    with torch.no_grad():
        rows = torch.log_softmax(model(torch.tensor([whole])).logits[0].double(), -1)
    return sum(float(rows[at - 1, whole[at]]) for at in range(len(context), len(whole)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
