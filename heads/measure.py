"""`python -m heads.measure --model FOLDER`: how many drafts of a head are right in answers it was not trained on."""

import argparse
import json
import time
from pathlib import Path

from graphpod_policy import SpeculativeMethod
from graphpod_runtime import Engine, SamplingOptions
from heads.texts import HELD_OUT, asked

TRAINED = Path(__file__).parent / "smollm2-135m-eagle"
DRAFTS = 3


def main() -> None:
    """Prints one JSON object: tokens of a pass (the acceptance length) and tokens a second, alone, with and without."""
    parser = argparse.ArgumentParser(prog="python -m heads.measure", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="the model's folder")
    parser.add_argument("--head", type=Path, default=TRAINED, help="the head's folder")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=128, help="of each answer, at most")
    options = parser.parse_args()
    plain, without = _answered(options, {})
    drafting = {"speculative": SpeculativeMethod.Eagle, "draft_model": options.head, "draft_tokens": DRAFTS}
    drafted, engine = _answered(options, drafting | {"drafts_max_batch": 1})
    passes = engine["graphpod_speculation_passes_total"]
    right = engine["graphpod_speculation_accepted_tokens_total"]
    found = {
        "acceptanceLength": round(1 + right / passes, 3),
        "tokensPerSecond": {"plain": round(without["rate"], 1), "drafted": round(engine["rate"], 1)},
        "answersEqual": sum(one == other for one, other in zip(plain, drafted, strict=True)),
        "answers": len(plain),
        "device": options.device,
    }
    print(json.dumps(found, indent=2))


def _answered(options: argparse.Namespace, more: dict[str, object]) -> tuple[list[tuple[int, ...]], dict[str, float]]:
    """Greedy answers in single precision, one after the other, and what was counted."""
    questions = asked(HELD_OUT)[:: max(1, len(asked(HELD_OUT)) // options.questions)][: options.questions]
    greedy = SamplingOptions(max_tokens=options.tokens, temperature=0.0)
    with Engine(
        options.model, device=options.device, dtype="float32", max_model_len=1024, max_batch=4, **more
    ) as engine:  # type: ignore[arg-type]
        began = time.perf_counter()
        found = [engine.chat([{"role": "user", "content": one}], greedy).token_ids for one in questions]
        rate = sum(map(len, found)) / (time.perf_counter() - began)
        value, names = engine.runner.counters.value, ("passes_total", "accepted_tokens_total")
        counted = {f"graphpod_speculation_{name}": float(value(f"graphpod_speculation_{name}")) for name in names}
    return found, counted | {"rate": rate}


if __name__ == "__main__":
    main()
