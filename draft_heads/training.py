"""An EAGLE head and how it learns, in plain PyTorch and without a KV cache.

Row i of a text is its hidden state h[i] next to the token behind it, t[i + 1]. From them the head predicts h[i + 1], of
which the model's own output matrix makes logits of t[i + 2]. A draft's next row has the head's own prediction in place
of a hidden state, so the head learns on its own predictions, too: step s begins at rows that step s - 1 gave. As in
EAGLE-3's training, a row of step s attends to true rows up to where its chain began, and to the rows of its chain.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

STEPS = 3
"""Drafts in a row that a head learns to write."""
DISCOUNT = 0.8
"""Of the loss of each further step."""
OTHER_TOKENS = 2048
"""Drawn tokens that compete with those of a batch: all of the vocabulary would cost more than the head itself."""
FEATURE_WEIGHT = 0.2
"""Of the distance to the true hidden state, next to the loss of the tokens."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Those of the model: the head's layer has them, too."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float


class Head(nn.Module):
    """Named as published checkpoints are."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        attention, kv = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
        self.fc = nn.Linear(2 * sizes.hidden, sizes.hidden, bias=False)
        self.q = nn.Linear(sizes.hidden, attention, bias=False)
        self.k, self.v = (nn.Linear(sizes.hidden, kv, bias=False) for _ in range(2))
        self.o = nn.Linear(attention, sizes.hidden, bias=False)
        self.norm = nn.Parameter(torch.ones(sizes.hidden))
        self.gate, self.up = (nn.Linear(sizes.hidden, sizes.intermediate, bias=False) for _ in range(2))
        self.down = nn.Linear(sizes.intermediate, sizes.hidden, bias=False)
        with torch.no_grad():
            for name, weight in self.named_parameters():
                if weight.dim() > 1:
                    weight.normal_(0, 0.002 if name.startswith(("o.", "down.")) else 0.02)
            # A hidden state is a fair guess of the next one.
            self.fc.weight[:, sizes.hidden :] += 0.5 * torch.eye(sizes.hidden)

    def named(self) -> dict[str, Tensor]:
        """Tensors of a checkpoint."""
        layer = {
            **{f"self_attn.{name}_proj.weight": getattr(self, name).weight for name in "qkvo"},
            **{f"mlp.{name}_proj.weight": getattr(self, name).weight for name in ("gate", "up", "down")},
            "post_attention_layernorm.weight": self.norm,
        }
        return {"fc.weight": self.fc.weight, **{f"layers.0.{name}": one for name, one in layer.items()}}

    def steps(self, embedded: Tensor, states: Tensor) -> list[Tensor]:
        """Predictions [batch, rows, hidden] of each step, from `embedded` [batch, rows, hidden], of the tokens behind
        the rows, and their true `states`. Row i of step s predicts the state i + 1; rows before s mean nothing."""
        rows = embedded.shape[1]
        rotation = self._rotation(rows, embedded)
        true = torch.arange(rows, device=embedded.device)
        found, keys, values = list[Tensor](), list[Tensor](), list[Tensor]()
        for step in range(STEPS):
            x = self.fc(torch.cat((embedded, states), -1))
            q, k, v = (self._heads(one(x)) for one in (self.q, self.k, self.v))
            q, k = _rotated(q, *rotation), _rotated(k, *rotation)
            groups = self.sizes.heads // self.sizes.kv_heads
            keys.append(k.repeat_interleave(groups, 1))
            values.append(v.repeat_interleave(groups, 1))
            # Of the chain: the row of step r is r - step rows away.
            own = [(q * keys[r].roll(step - r, 2)).sum(-1, keepdim=True) for r in range(1, step + 1)]
            seen = true[:, None] - step >= true
            scores = torch.cat(((q @ keys[0].mT).masked_fill(~seen, -1e9), *own), -1) * self.sizes.head_dim**-0.5
            weights = scores.softmax(-1)
            attended = weights[..., :rows] @ values[0]
            for r in range(1, step + 1):
                attended = attended + weights[..., rows + r - 1, None] * values[r].roll(step - r, 2)
            x = x + self.o(attended.transpose(1, 2).flatten(2))
            normed = functional.rms_norm(x, (x.shape[-1],), self.norm, self.sizes.norm_eps)
            x = x + self.down(functional.silu(self.gate(normed)) * self.up(normed))
            found.append(x)
            states = x.roll(1, 1)
        return found

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.sizes.head_dim)).transpose(1, 2)

    def _rotation(self, rows: int, like: Tensor) -> tuple[Tensor, Tensor]:
        width = self.sizes.head_dim
        frequencies = self.sizes.rope_theta ** -(torch.arange(0, width, 2, device=like.device) / width)
        angles = torch.arange(rows, device=like.device)[:, None] * torch.cat((frequencies, frequencies))
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def _rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cosines + torch.cat((-second, first), -1) * sines


def loss(
    head: Head, tokens: Tensor, states: Tensor, real: Tensor, embedding: Tensor, output: Tensor
) -> tuple[Tensor, Tensor]:
    """Of texts `tokens` [batch, n] with the model's final `states` [batch, n, hidden]; `real` bool [batch, n]: what is
    no padding. Next to it how often each step wrote the model's own likeliest token [STEPS].
    """
    found = head.steps(functional.embedding(tokens[:, 1:], embedding), states[:, :-1])
    with torch.no_grad():
        chosen = torch.cat((tokens[real], torch.randint(len(output), (OTHER_TOKENS,), device=tokens.device)))
        candidates = output[chosen.unique()]
        wanted = functional.linear(states[:, 1:], candidates)
        best, probabilities = wanted.argmax(-1), wanted.float().softmax(-1)
    total, right = torch.zeros((), device=states.device), []
    for step, state in enumerate(found):
        counts = real[:, 1 + step :]
        logits = functional.linear(state[:, step:], candidates)
        entropy = -(probabilities[:, step:] * logits.float().log_softmax(-1)).sum(-1)[counts].mean()
        distance = functional.smooth_l1_loss(state[:, step:][counts].float(), states[:, 1 + step :][counts].float())
        total = total + DISCOUNT**step * (entropy + FEATURE_WEIGHT * distance)
        right.append((logits.argmax(-1) == best[:, step:])[counts].float().mean())
    return total, torch.stack(right)
