"""`python -m draft_heads --model FOLDER`: trains the EAGLE head of a model, and writes it as a checkpoint."""

import argparse
import json
import random
import sys
import time
from dataclasses import fields
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from draft_heads.texts import LENGTH, tokens
from draft_heads.training import Head, Sizes, loss
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.models.model import Model

TRAINED = Path(__file__).parent / "smollm2-135m-eagle"
BATCH = {"cpu": 8, "cuda": 32}
"""Texts of a step."""
RATE, WARM = {"cpu": 6e-4, "cuda": 1e-3}, 100
"""The largest step, and how many steps it takes to get there."""
SAVED_SECONDS = 60.0


def main() -> int:
    options = _parser().parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    rows = tokens(options.model, options.device, options.work, options.tokens, _say)
    dtype = torch.bfloat16
    model = load_model(options.model, dtype, LENGTH, torch.device(options.device))
    head = _trained(model, rows, options)
    _write(head, options.model, options.out)
    _say(f"{options.out}: {sum(one.numel() for one in head.parameters()) / 1e6:.1f} M weights\n")
    return 0


def _trained(model: Model, rows: list[list[int]], options: argparse.Namespace) -> Head:
    """A head after `options.minutes` of training in all, interrupted or not."""
    sizes = Sizes(**{field.name: getattr(model.shape, field.name) for field in fields(Sizes)})
    device, kept = torch.device(options.device), options.work / "training.pt"
    torch.manual_seed(0)
    head = Head(sizes).to(device)
    optimizer = torch.optim.AdamW(head.parameters(), RATE[options.device], betas=(0.9, 0.95), weight_decay=0.01)
    done, spent = 0, 0.0
    if kept.exists():
        state = torch.load(kept, map_location=device)
        head.load_state_dict(state["head"])
        optimizer.load_state_dict(state["optimizer"])
        done, spent = state["done"], state["spent"]
    embedding, output = model.embed(torch.arange(model.shape.vocab, device=device)), model.output  # type: ignore[attr-defined]
    states: dict[int, Tensor] = {}
    """Of rows that were read: the model takes longer than the head."""
    limit = 60.0 * options.minutes
    began = saved = time.monotonic()
    shares: Tensor | None = None
    while (now := spent + time.monotonic() - began) < limit:
        chosen = random.Random(done).sample(range(len(rows)), BATCH[options.device])
        lengths = torch.tensor([len(rows[at]) for at in chosen])
        batch = pad_sequence([torch.tensor(rows[at]) for at in chosen], batch_first=True).to(device)
        real = (torch.arange(batch.shape[1]) < lengths[:, None]).to(device)
        if not states.keys() >= set(chosen):
            states.update((at, one[: len(rows[at])]) for at, one in zip(chosen, _states(model, batch), strict=True))
        true = pad_sequence([states[at] for at in chosen], batch_first=True)
        rate = RATE[options.device] * min(1.0, (done + 1) / WARM) * max(0.02, 1 - now / limit)
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast(options.device, torch.bfloat16):
            value, right = loss(head, batch, true, real, embedding, output)
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 0.5)
        optimizer.step()
        done += 1
        shares = right if shares is None else 0.98 * shares + 0.02 * right
        if done % 10 == 0:
            parts = " ".join(f"{share:.2f}" for share in shares.tolist())
            _say(f"step {done}, {now / 60:.1f} of {options.minutes} min; loss {value.item():.2f}, right {parts}")
        if time.monotonic() - saved > SAVED_SECONDS:
            saved = time.monotonic()
            state = {"head": head.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state | {"done": done, "spent": spent + saved - began}, kept)
    kept.unlink(missing_ok=True)
    return head


@torch.no_grad()
def _states(model: Model, batch: Tensor) -> Tensor:
    """The model's final hidden states [batch, n, hidden] of texts [batch, n]. Padding lies behind them."""
    count, width = batch.shape

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (one.view(count, width, *one.shape[1:]).transpose(1, 2) for one in (q, k, v))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return attended.transpose(1, 2).reshape(count * width, -1)

    positions = torch.arange(width, device=batch.device).repeat(count)
    hidden = model.body(model.embed(batch.flatten()), positions, attend)
    return model.final(hidden).view(count, width, -1)


def _write(head: Head, model: Path, out: Path) -> None:
    """As published heads are: their config.json is the model's, of one layer."""
    out.mkdir(parents=True, exist_ok=True)
    config = json.loads((model / "config.json").read_bytes())
    config |= {"architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": 1, "bias": False}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    weights = {name: one.detach().to("cpu", torch.bfloat16).contiguous() for name, one in head.named().items()}
    save_file(weights, out / "model.safetensors", {"format": "pt"})


def _say(line: str) -> None:
    """One line that the next one replaces at a terminal."""
    print(
        f"\r{line:<100}" if sys.stderr.isatty() else line,
        end="" if sys.stderr.isatty() else "\n",
        file=sys.stderr,
        flush=True,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m draft_heads", description="train the EAGLE head of a model; an interrupted run goes on"
    )
    parser.add_argument("--model", type=Path, required=True, help="the model's folder")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--minutes", type=float, default=20, help="of training; default: 20")
    parser.add_argument(
        "--tokens", type=int, default=150_000, help="of texts, written by the model before; default: 150000"
    )
    parser.add_argument(
        "--work", type=Path, default=Path("build/eagle-head"), help="where texts and the state are kept"
    )
    parser.add_argument("--out", type=Path, default=TRAINED, help="the head's folder")
    return parser


if __name__ == "__main__":
    sys.exit(main())
