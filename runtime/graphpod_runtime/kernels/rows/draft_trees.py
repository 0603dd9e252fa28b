"""Drafts as trees: tokens of which several may follow the same one. A pass verifies all nodes of a tree at once.

Node 0 is the sequence's latest token, and parents come before their children. Node n has the n-th KV slot behind the
latest token, whatever its depth, and does not see those in front of it that are no ancestors of it. The right branch
is moved to where a chain would have it once it is known: then it is text like any other.

A set bit n of a node's `hidden` hides the n-th slot in front of its own, as `Inputs` has it. So a child at a distance d
behind its parent hides what the parent does, d further away, and the d - 1 slots between them.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from graphpod_runtime.cache.cells import bits
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.kernels.rows.draft_rows import LENGTH, PAGES, TOKEN, Places


class DraftTrees(NamedTuple):
    """Of the entries of a step, int64 [entries, nodes]."""

    tokens: Tensor
    """0 for node 0."""
    parents: Tensor
    """Nodes; 0 for node 0."""
    depths: Tensor
    hidden: Tensor

    @classmethod
    def of(cls, packed: Tensor) -> "DraftTrees":
        """From `packed` [entries, 4, nodes]."""
        return cls(*packed.unbind(1))


class Candidates(NamedTuple):
    """Tokens that a tree may have, [entries, count]: parents in front of their children, none likelier than those."""

    tokens: Tensor
    parents: Tensor
    """Candidates; -1: the latest token."""
    depths: Tensor
    """From 1 on."""
    scores: Tensor
    """Log-probabilities of the branches that they end; none is NaN."""


def hidden_behind(hidden: Tensor, distance: Tensor) -> Tensor:
    """What nodes hide that are so far behind their parents, which hide `hidden`."""
    return (hidden << distance) | ((1 << distance) - 2)


def likeliest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row of `scores`, and where they are; of equal ones the first."""
    scores, order = scores.sort(dim=1, descending=True, stable=True)
    return scores[:, :count], order[:, :count]


def grown(candidates: Candidates, nodes: int, deepest: int) -> Tensor:
    """[entries, 4, nodes]: trees of the likeliest candidates, no deeper than `deepest`, packed as `DraftTrees.of` reads
    them. No candidate is likelier than its parent, which is in front of it; so the parent is in the tree, too."""
    tokens, parents, depths, scores = candidates
    _, chosen = likeliest(scores, nodes - 1)
    device = tokens.device
    at = torch.arange(nodes, device=device).expand(len(tokens), -1)
    # Of candidates that are not chosen the place is not read.
    place = torch.zeros_like(tokens).scatter(1, chosen, at[:, 1:])
    own = parents.gather(1, chosen)
    root = torch.zeros_like(at[:, :1])
    above = torch.cat((root, place.gather(1, own.clamp(min=0)).masked_fill(own < 0, 0)), 1)
    distance = (at - above).clamp(min=1)
    hidden = torch.zeros_like(above)
    for _ in range(deepest):
        hidden = hidden_behind(hidden.gather(1, above), distance).masked_fill(at == 0, 0)
    parts = torch.cat((root, tokens.gather(1, chosen)), 1), above, torch.cat((root, depths.gather(1, chosen)), 1)
    return torch.stack((*parts, hidden), 1)


class Walked(NamedTuple):
    """What the passes over trees gave."""

    taken: Tensor
    """int64 [entries, deepest + 3]: as `draft_rows.advance` gives it, for a width of deepest + 1."""
    path: Tensor
    """[entries, deepest + 1]: the nodes of the right branch, 0 first; behind its end, the last one again."""


def walk(
    state: Tensor,
    seats: Tensor,
    places: Places,
    trees: DraftTrees,
    read: Tensor,
    real: Tensor,
    tokens: Tensor,
    deepest: int,
) -> Walked:
    """As `draft_rows.advance`, of rows that are nodes: a child is right when it is the token that follows its parent,
    and its parent is right."""
    following, drafted = tokens[places.rows], read[places.rows]
    at = torch.arange(following.shape[1], device=tokens.device)
    verified = real[places.rows] & (at > 0) & (at <= places.drafts[:, None])
    right = verified & (drafted == following.gather(1, trees.parents))
    node = torch.zeros_like(seats)
    accepted, path = node, [node]
    for _ in range(deepest):
        next_one = right & (trees.parents == node[:, None])
        goes_on = next_one.any(1)
        node = next_one.int().argmax(1).where(goes_on, node)
        accepted = accepted + goes_on
        path.append(node)
    nodes = torch.stack(path, 1)
    run = following.gather(1, nodes)
    state[seats, TOKEN] = run.gather(1, accepted[:, None])[:, 0].clamp(min=0)
    state[seats, LENGTH] += accepted + 1
    return Walked(torch.cat((run, verified.sum(1, keepdim=True), accepted[:, None]), 1), nodes)


def straighten(cache: KvCache, own: Tensor, walked: Walked) -> None:
    """Moves what `cache` has of the right branches to where chains would have it. `own` [entries, PAGES + pages] are
    the seats as they were before `walk`."""
    size = cache.page_size
    depths = torch.arange(1, walked.path.shape[1], device=own.device)
    moves = depths <= walked.taken[:, -1:]
    tables, latest = own[:, PAGES:], own[:, LENGTH, None] - 1

    def slots(behind: Tensor) -> Tensor:
        # What does not move is the first slot of the scratch page, onto itself.
        place = (latest + behind).where(moves, 0)
        return (tables.gather(1, place // size) * size + place % size).where(moves, SCRATCH_PAGE * size).flatten()

    sources, targets = slots(walked.path[:, 1:]), slots(depths.expand_as(moves))
    for cells in (*(bits(half).flatten(1, 2) for half in cache.halves), cache.slot_tokens.view(1, -1)):
        # All are read before any is written: a target may be the source of another.
        cells.index_copy_(1, targets, cells.index_select(1, sources))
