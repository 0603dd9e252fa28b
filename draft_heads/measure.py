"""`python -m draft_heads.measure --model FOLDER`: how many drafts of a head are right in text it was not trained on."""

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch

from draft_heads.texts import HELD_OUT, asked
from graphpod_policy import Policy, SpeculativeMethod, __version__
from graphpod_runtime import Engine, SamplingOptions

TRAINED = Path(__file__).parent / "smollm2-135m-eagle"
DRAFTS = 3


class Form(NamedTuple):
    """Of drafts: those that follow each other, branches of a step, and drafts of a tree, None for a chain."""

    steps: int = DRAFTS
    topk: int = 1
    nodes: int | None = None


CHAIN = Form()


def main() -> None:
    """Prints one JSON object: what `measured` found, and where and when."""
    parser = argparse.ArgumentParser(prog="python -m draft_heads.measure", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="the model's folder")
    parser.add_argument("--head", type=Path, default=TRAINED, help="the head's folder")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=128, help="of each answer, at most")
    parser.add_argument("--steps", type=int, default=DRAFTS, help="drafts of a branch")
    parser.add_argument("--topk", type=int, default=1, help="branches of a step; above 1 drafts are a tree")
    parser.add_argument("--nodes", type=int, help="drafts of a tree")
    parser.add_argument("--json", type=Path, help="file for the result")
    options = parser.parse_args()
    form = Form(options.steps, options.topk, options.nodes)
    found = measured(options.model, options.head, options.device, options.questions, options.tokens, form)
    found |= {"device": options.device, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    found |= {"graphpod": __version__, "torch": torch.__version__}
    print(text := json.dumps(found, indent=2))
    if options.json is not None:
        options.json.write_text(f"{text}\n")


def measured(model: Path, head: Path, device: str, questions: int, tokens: int, form: Form = CHAIN) -> dict[str, Any]:
    """Of answers of up to `tokens` to so many `questions`, one after the other: the tokens of a pass (the acceptance
    length), tokens a second with and without drafts, and how many answers are the same with and without."""
    chosen = asked(HELD_OUT)[:: max(1, len(asked(HELD_OUT)) // questions)][:questions]
    plain, without = _answered(model, device, chosen, tokens, {})
    drafting = {"speculative": SpeculativeMethod.Eagle, "draft_model": head, "draft_tokens": form.steps}
    drafting |= {"draft_topk": form.topk, "draft_tree_tokens": form.nodes}
    drafted, engine = _answered(model, device, chosen, tokens, drafting | {"drafts_max_batch": 1})
    return {
        "acceptanceLength": round(1 + engine["accepted_tokens_total"] / engine["passes_total"], 3),
        "tokensPerSecond": {"plain": round(without["rate"], 1), "drafted": round(engine["rate"], 1)},
        "answersEqual": sum(one == other for one, other in zip(plain, drafted, strict=True)),
        "answers": len(plain),
        "drafts": form.steps,
    } | ({} if form.topk == 1 else {"topk": form.topk, "nodes": form.nodes or form.steps * form.topk})


def _answered(
    model: Path, device: str, questions: list[str], tokens: int, more: dict[str, Any]
) -> tuple[list[tuple[int, ...]], dict[str, float]]:
    """Greedy answers in single precision, one after the other, and what was counted. On a CPU without graphs, whose
    capture would take longer than the answers. Each answer is a line of stderr, as they take seconds on a CPU."""
    greedy = SamplingOptions(max_tokens=tokens, temperature=0.0)
    policy = Policy.Disabled if device == "cpu" else Policy.Auto
    kind = "with" if "speculative" in more else "without"
    more |= {"prefill": policy, "decode": policy}
    with Engine(model, device=device, dtype="float32", max_model_len=1024, max_batch=4, **more) as engine:
        began = time.perf_counter()
        found = []
        for number, one in enumerate(questions, 1):
            found.append(engine.chat([{"role": "user", "content": one}], greedy).token_ids)
            print(f"{kind} drafts: answer {number} of {len(questions)}", file=sys.stderr, flush=True)
        rate = sum(map(len, found)) / (time.perf_counter() - began)
        value, names = engine.runner.counters.value, ("passes_total", "accepted_tokens_total")
        return found, {name: float(value(f"graphpod_speculation_{name}")) for name in names} | {"rate": rate}


if __name__ == "__main__":
    main()
