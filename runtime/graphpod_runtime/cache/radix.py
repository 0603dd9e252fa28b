"""The prefix cache: a radix tree over whole pages of KV, by the tokens whose keys and values they hold.

A node holds a run of pages, and each of its children begins with another page. A path from a root spells the tokens of
a prefix. Every adapter and salt has a root of its own: the same tokens have other keys and values there, or must not be
seen. Pages in the tree are read-only.

A lock on a node locks its path. Only unlocked leaves are evicted, the least recently used first and from their ends, so
what is left of a prefix is always a prefix. A page belongs to the tree from `insert` until `evict`, `withdraw` or
`unlock` hands it back. Pure: no device, no torch.
"""

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Namespace = tuple[str, str]
"""Adapter and salt."""


@dataclass(slots=True, eq=False)
class Node:
    """A run of pages, and what follows it. A root has no pages."""

    namespace: Namespace
    parent: "Node | None"
    tokens: list[int]
    pages: list[int]
    end: int
    """Pages from the root to the end of this node."""
    children: dict[tuple[int, ...], "Node"] = field(default_factory=dict)
    """By the tokens of their first page."""
    locks: int = 0
    """Readers of this node or of one below it."""
    used: int = 0
    """When it was last locked or unlocked."""
    withdrawn: bool = False
    """It is not found any more; its pages go with its last lock, if they are not gone."""

    @property
    def path(self) -> Iterator["Node"]:
        """This node and those above it, up to the root."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent


class Match(NamedTuple):
    """Whole pages of a prefix that the tree has, and how many of them could be evicted now."""

    pages: int
    unlocked: int


@dataclass(slots=True)
class Bookmark:
    """Where the latest search for one text ended. The next one for it goes on from what is left of that."""

    node: Node | None = None
    pages: int = 0


class RadixTree:
    """Prefixes in pages of `page_size` tokens. The caller owns the allocator: the tree only says which pages it has."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.size = 0
        """Pages that the tree owns."""
        self.evictable = 0
        """Those of them that `evict` can give now."""
        self.evicted = 0
        """Pages that `evict` has given since the start."""
        self._roots: dict[Namespace, Node] = {}
        self._leaves: list[tuple[int, int, Node]] = []
        """Unlocked leaves by their last use; entries that are no longer true are skipped."""
        self._nodes = 0
        self._clock = itertools.count(1)

    def match(self, tokens: list[int], limit: int, namespace: Namespace, bookmark: Bookmark | None = None) -> Match:
        """How much of tokens[:limit] is there. Changes nothing but `bookmark`, which belongs to these tokens and this
        limit.
        """
        node, shared = self._find(tokens, limit, namespace, bookmark)
        if node is None:
            return Match(0, 0)
        above = node.end - len(node.pages)
        unlocked = 0 if node.locks else shared - above
        if node.parent is not None:
            unlocked += sum(len(one.pages) for one in node.parent.path if not one.locks)
        return Match(shared, unlocked)

    def lock(self, tokens: list[int], limit: int, namespace: Namespace, bookmark: Bookmark | None = None) -> Node:
        """Locks the path of the longest cached prefix of tokens[:limit]; the node at its end, a root where nothing is
        cached. `bookmark` as in `match`.
        """
        node, shared = self._find(tokens, limit, namespace, bookmark)
        if node is None:
            node = self._roots[namespace] = Node(namespace, None, [], [], 0)
        elif shared < node.end:
            node = self._split(node, shared)
        self._lock(node)
        return node

    def unlock(self, node: Node) -> list[int]:
        """Takes one lock back. The pages of a path that was withdrawn, once they have no reader: the caller frees them,
        and they are not clean.
        """
        now, freed = next(self._clock), list[int]()
        for one in list(node.path):
            one.locks -= 1
            one.used = now
            if one.locks:
                continue
            if one.withdrawn:
                freed += self._forget(one)
            elif one.parent is not None:
                self.evictable += len(one.pages)
            self._settle(one)
        return freed

    def pages(self, node: Node) -> list[int]:
        """The pages from the root to the end of `node`, in order."""
        runs = [one.pages for one in node.path]
        return [page for run in reversed(runs) for page in run]

    def continues(self, node: Node, tokens: list[int]) -> bool:
        """Whether the tree has the page of `tokens` that follows `node`."""
        return self._key(tokens, node.end) in node.children

    def insert(self, node: Node, tokens: list[int], pages: Sequence[int]) -> tuple[Node, list[int]]:
        """Enters `pages`, which hold the keys and values of `tokens` from their beginning and start with the pages of
        `node`, which the caller has locked. The lock moves to the node returned, at the end of `pages`. The pages
        returned are the tree's from now on. The others stay the caller's: the tree had their tokens already.
        """
        if node.withdrawn:
            return node, []
        whole = len(pages) * self.page_size
        last, shared = self._descend(node, node.end, tokens, whole)
        if shared < last.end:
            last = self._split(last, shared)
        taken = list(pages[shared:])
        if taken:
            new = tokens[shared * self.page_size : whole]
            child = Node(node.namespace, last, new, taken, len(pages))
            last.children[self._key(new, 0)] = child
            self._nodes += 1
            self.size += len(taken)
            self.evictable += len(taken)
            last = child
        if last is not node:
            self._lock(last)
            self.unlock(node)
        return last, taken

    def evict(self, count: int) -> list[int]:
        """Up to `count` pages of unlocked leaves, least recently used first. They are the caller's."""
        freed: list[int] = []
        while len(freed) < count and self._leaves:
            used, _, node = heapq.heappop(self._leaves)
            if not self._is_free_leaf(node) or node.used != used:
                continue
            cut = max(0, len(node.pages) - (count - len(freed)))
            freed += reversed(node.pages[cut:])
            if not cut:
                self._remove(node)
                continue
            node.end -= len(node.pages) - cut
            del node.pages[cut:], node.tokens[cut * self.page_size :]
            self._settle(node)
        self.size -= len(freed)
        self.evictable -= len(freed)
        self.evicted += len(freed)
        return freed

    def withdraw(self, node: Node) -> list[int]:
        """The path of `node`, and what follows it, is not found any more: its pages may hold NaN. Those that no
        sequence reads are the caller's, not clean; the others come back from `unlock`.
        """
        top = next((one for one in node.path if one.parent is not None and one.parent.parent is None), None)
        if top is None or top.withdrawn:
            return []
        assert top.parent is not None
        del top.parent.children[self._key(top.tokens, 0)]
        freed, open_nodes = list[int](), [top]
        while open_nodes:
            one = open_nodes.pop()
            one.withdrawn = True
            open_nodes += one.children.values()
            if not one.locks:
                self.evictable -= len(one.pages)
                freed += self._forget(one)
        self._settle(top.parent)
        return freed

    def _find(
        self, tokens: list[int], limit: int, namespace: Namespace, bookmark: Bookmark | None
    ) -> tuple[Node | None, int]:
        """The last node that shares a page with tokens[:limit], and all pages shared; no node without a root."""
        root = self._roots.get(namespace)
        if root is None:
            return None, 0
        bookmark = bookmark or Bookmark()
        bookmark.node, bookmark.pages = self._descend(*self._left_of(bookmark, root), tokens, limit)
        return bookmark.node, bookmark.pages

    def _left_of(self, bookmark: Bookmark, root: Node) -> tuple[Node, int]:
        """The last node that still shares a page with the text of `bookmark`, and all pages shared up to there.
        Meanwhile nodes are split, shortened and removed; they never grow.
        """
        node = bookmark.node or root
        while node.withdrawn:
            if node.parent is None:
                return root, 0
            node = node.parent
        shared = min(bookmark.pages, node.end)
        while node.parent is not None and shared <= node.end - len(node.pages):
            node = node.parent
        return node, shared

    def _descend(self, node: Node, shared: int, tokens: list[int], limit: int) -> tuple[Node, int]:
        """As `_find`, from a `node` that shares its pages up to `shared`."""
        pages = limit // self.page_size
        while shared < pages and shared == node.end:
            child = node.children.get(self._key(tokens, shared))
            if child is None:
                break
            node, shared = child, shared + self._common(child, tokens, shared, pages)
        return node, shared

    def _common(self, node: Node, tokens: list[int], start: int, pages: int) -> int:
        """Pages that `node` shares with `tokens` from page `start` on, of `pages` in all: at least one."""
        size = self.page_size
        same, end = 1, min(len(node.pages), pages - start)
        # By halves: most prompts share all of a node, and no token is read more than twice.
        middle = end
        while same < end:
            ours = tokens[(start + same) * size : (start + middle) * size]
            if node.tokens[same * size : middle * size] == ours:
                same = middle
            else:
                end = middle - 1
            middle = (same + end + 1) // 2
        return same

    def _split(self, node: Node, end: int) -> Node:
        """Cuts `node` at page `end` from the root; the upper part. Locks below it stay."""
        assert node.parent is not None
        cut = len(node.pages) - (node.end - end)
        at = cut * self.page_size
        upper = Node(node.namespace, node.parent, node.tokens[:at], node.pages[:cut], end)
        upper.locks, upper.used = node.locks, node.used
        node.parent.children[self._key(upper.tokens, 0)] = upper
        node.parent, node.tokens, node.pages = upper, node.tokens[at:], node.pages[cut:]
        upper.children[self._key(node.tokens, 0)] = node
        self._nodes += 1
        return upper

    def _lock(self, node: Node) -> None:
        now = next(self._clock)
        for one in node.path:
            if not one.locks:
                self.evictable -= len(one.pages)
            one.locks += 1
            one.used = now

    def _settle(self, node: Node) -> None:
        """Notes a leaf that can be evicted, and drops a root that nothing stands on."""
        if not self._is_free_leaf(node):
            return
        if node.parent is None:
            node.withdrawn = True
            del self._roots[node.namespace]
            return
        heapq.heappush(self._leaves, (node.used, next(self._clock), node))
        if len(self._leaves) > 2 * self._nodes + 64:
            live = [entry for entry in self._leaves if self._is_free_leaf(entry[2]) and entry[0] == entry[2].used]
            self._leaves = list({entry[2]: entry for entry in live}.values())
            heapq.heapify(self._leaves)

    def _is_free_leaf(self, node: Node) -> bool:
        return not node.children and not node.locks and not node.withdrawn

    def _remove(self, leaf: Node) -> None:
        """Takes an evicted leaf out; the node above it may be a leaf now."""
        assert leaf.parent is not None
        del leaf.parent.children[self._key(leaf.tokens, 0)]
        leaf.withdrawn = True
        self._nodes -= 1
        self._settle(leaf.parent)

    def _forget(self, node: Node) -> list[int]:
        """The pages of a withdrawn node without readers."""
        self._nodes -= 1
        self.size -= len(node.pages)
        pages, node.pages = node.pages, []
        return pages

    def _key(self, tokens: list[int], page: int) -> tuple[int, ...]:
        return tuple(tokens[page * self.page_size : (page + 1) * self.page_size])
