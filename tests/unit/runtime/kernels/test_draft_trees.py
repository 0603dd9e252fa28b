"""Trees of drafts as tensors: which grow, which branch is right, and where its keys and values go."""

import pytest
import torch

from graphpod_policy.features import MOST_TREE_TOKENS
from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.kernels.rows.draft_rows import LENGTH, PAGES, ROOM, TOKEN, Places
from graphpod_runtime.kernels.rows.draft_trees import Candidates, DraftTrees, grown, straighten, walk
from graphpod_runtime.kernels.tree_attention import HIDEABLE, seen, tree_attention

SHAPE = ModelShape("toy", 2, 64, 8, 4, 2, 16, 16, 64, 1e-5, 1e4, True, ())

PAGE, PAGES_OF_ONE = 4, 5


def ancestors(parents: list[int], node: int) -> set[int]:
    """With the node itself."""
    return {node} if node == 0 else {node} | ancestors(parents, parents[node])


def random_tree(nodes: int, generator: torch.Generator) -> DraftTrees:
    """One of random candidates, packed and read again."""
    parents = [-1, -1, *(int(torch.randint(0, at, (), generator=generator)) for at in range(2, 2 * nodes))]
    scores, depths = torch.rand(2 * nodes, generator=generator).neg(), [1, 1]
    for at, parent in enumerate(parents[2:], 2):
        scores[at] += scores[parent]
        depths.append(depths[parent] + 1)
    tokens = torch.arange(2 * nodes) + 10
    whole = (tokens, torch.tensor(parents), torch.tensor(depths), scores)
    return DraftTrees.of(grown(Candidates(*(part[None] for part in whole)), nodes, deepest=max(depths)))


@pytest.mark.parametrize("nodes", [2, 9, MOST_TREE_TOKENS + 1])
def test_a_node_sees_its_ancestors_and_what_is_in_front_of_the_tree(nodes: int) -> None:
    trees = random_tree(nodes, torch.Generator().manual_seed(nodes))
    parents, past = trees.parents[0].tolist(), 6
    assert trees.depths[0].tolist() == [len(ancestors(parents, node)) - 1 for node in range(nodes)]
    lengths = past + 1 + torch.arange(nodes)
    shown = seen(lengths, trees.hidden[0], past + nodes, None)
    for node in range(nodes):
        there = set(range(past)) | {past + one for one in ancestors(parents, node)}
        assert set(shown[node].nonzero()[:, 0].tolist()) == there


def test_a_mask_has_room_for_the_largest_tree() -> None:
    assert HIDEABLE == MOST_TREE_TOKENS + 1


def test_of_equally_likely_candidates_the_parents_are_taken_first() -> None:
    """Certain drafts, and such of states that are no numbers."""
    parents = torch.tensor([[-1, 0, 1, 2]] * 2)
    scores = torch.tensor([[0.0] * 4, [-torch.inf] * 4])
    tokens = torch.tensor([[7, 8, 9, 10]] * 2)
    packed = grown(Candidates(tokens, parents, torch.tensor([[1, 2, 3, 4]] * 2), scores), 3, deepest=4)
    assert packed[:, 0].tolist() == [[0, 7, 8]] * 2
    assert packed[:, 1].tolist() == [[0, 0, 1]] * 2


def state_of(lengths: list[int], latest: list[int]) -> torch.Tensor:
    """Seats that have their own pages, and one of padding."""
    state = torch.zeros(len(lengths) + 1, PAGES + PAGES_OF_ONE, dtype=torch.int64)
    for seat, (length, token) in enumerate(zip(lengths, latest, strict=True)):
        pages = range(1 + seat * PAGES_OF_ONE, 1 + (seat + 1) * PAGES_OF_ONE)
        state[seat] = torch.tensor([token, length, PAGES_OF_ONE * PAGE, *pages])
    return state


TREE = {
    "tokens": [0, 21, 22, 23, 24, 25],
    "parents": [0, 0, 0, 1, 2, 4],
    "depths": [0, 1, 1, 2, 2, 3],
}
"""Node 2 has a branch 22, 24, 25; node 1 one of 21, 23."""


def test_the_right_branch_is_walked_and_becomes_text_in_a_row() -> None:
    """The second branch of the first sequence, none of the second, which has one row, and as far as the third has
    room."""
    lengths = [6, 9, 11]
    state = state_of(lengths, [5, 6, 7])
    state[2, ROOM] = 15  # up to node 4
    trees = DraftTrees(*(torch.tensor([part] * 3) for part in (*TREE.values(), [0] * 6)))
    widths = (6, 1, 6)
    places = Places.of(widths, state.device)
    read = trees.tokens[places.entries, places.offsets]
    real = lengths_of(places, lengths) <= state[places.entries, ROOM]
    # What follows the rows: 22 and 24 and 25 are right, and behind 25 comes 30.
    follows = torch.tensor([22, 90, 24, 91, 25, 30, 40, 22, 90, 24, 91, 25, 30])
    own, seats = state[:3].clone(), torch.arange(3)
    walked = walk(state, seats, places, trees, read, real, follows, deepest=3)
    assert walked.path.tolist() == [[0, 2, 4, 5], [0, 0, 0, 0], [0, 2, 4, 4]]
    assert walked.taken[:, -1].tolist() == [3, 0, 2]
    assert walked.taken[:, -2].tolist() == [5, 0, 4]
    assert walked.taken[0, :4].tolist() == [22, 24, 25, 30]
    assert walked.taken[2, :3].tolist() == [22, 24, 25]
    assert state[:3, TOKEN].tolist() == [30, 40, 25]
    assert state[:3, LENGTH].tolist() == [10, 10, 14]

    cache = KvCache.allocate(SHAPE, 1 + 3 * PAGES_OF_ONE, PAGE, torch.float32)
    slots = cache.pages * PAGE
    for half in cache.halves:
        half.copy_(torch.arange(slots).view(1, -1, PAGE, 1, 1).expand_as(half))
    cache.slot_tokens.copy_(torch.arange(slots).view(-1, PAGE))
    straighten(cache, own, walked)
    expected = torch.arange(slots)
    for seat, path in ((0, (2, 4, 5)), (2, (2, 4))):
        latest = (1 + seat * PAGES_OF_ONE) * PAGE + lengths[seat] - 1
        for depth, node in enumerate(path, 1):
            expected[latest + depth] = latest + node
    assert cache.slot_tokens.flatten().tolist() == expected.tolist()
    for half in cache.halves:
        assert torch.equal(half, expected.to(half.dtype).view(1, -1, PAGE, 1, 1).expand_as(half))


def lengths_of(places: Places, lengths: list[int]) -> torch.Tensor:
    return torch.tensor(lengths)[places.entries] + places.offsets


@pytest.mark.parametrize(("window", "cap"), [(None, None), (5, None), (7, 20.0)])
def test_attention_of_a_node_is_that_of_its_branch_as_a_chain(window: int | None, cap: float | None) -> None:
    """Over NaN wherever it must not look."""
    generator = torch.Generator().manual_seed(3)
    nodes, past, heads, kv_heads, width = 9, 6, 4, 2, 16
    trees = random_tree(nodes, generator)
    parents = trees.parents[0].tolist()
    keys, values = (torch.full((6, PAGE, kv_heads, width), torch.nan) for _ in range(2))
    table, total = torch.tensor([3, 1, 5, 2]), past + nodes
    slots = table[torch.arange(total) // PAGE] * PAGE + torch.arange(total) % PAGE
    rows = {name: torch.randn(total, count, width, generator=generator) for name, count in
            (("q", heads), ("k", kv_heads), ("v", kv_heads))}  # fmt: skip
    for cells, name in ((keys, "k"), (values, "v")):
        cells.flatten(0, 1)[slots[:past]] = rows[name][:past]
    out = torch.zeros(nodes, heads, width)
    own = {name: one[past:].contiguous() for name, one in rows.items()}
    lengths = past + 1 + torch.arange(nodes)
    tree_attention(
        own["q"], own["k"], own["v"], keys, values, slots[past:], table.expand(nodes, -1).contiguous(), lengths,
        trees.hidden[0], width**-0.5, window, cap, None, 1.0, 1.0, out,
    )  # fmt: skip
    for node in range(nodes):
        text = [*range(past), *sorted(past + one for one in ancestors(parents, node))][-(window or total) :]
        k, v = (rows[name][text].repeat_interleave(heads // kv_heads, 1) for name in ("k", "v"))
        scores = torch.einsum("hd,thd->ht", rows["q"][past + node], k) * width**-0.5
        scores = scores if cap is None else torch.tanh(scores / cap) * cap
        expected = torch.einsum("ht,thd->hd", scores.softmax(-1), v)
        assert torch.allclose(out[node], expected, atol=1e-5), node
