"""Nodes of the radix tree, and what its calls give."""

from collections.abc import Iterator
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
    """Of the device; of a host node slots of the host pool."""
    end: int
    """Pages from the root to the end of this node."""
    host: bool = False
    children: dict[tuple[int, ...], "Node"] = field(default_factory=dict)
    """By the tokens of their first page."""
    below: int = 0
    """Those of them that are no host nodes."""
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

    @property
    def subtree(self) -> Iterator["Node"]:
        """The nodes below this one, each behind those above it."""
        open_nodes = list(self.children.values())
        while open_nodes:
            node = open_nodes.pop()
            open_nodes += node.children.values()
            yield node

    @property
    def text(self) -> list[int]:
        """The tokens from the root to the end of this node."""
        runs = [one.tokens for one in self.path]
        return [token for run in reversed(runs) for token in run]

    def on_device(self, shared: int) -> tuple["Node", int]:
        """The last node of the path that is no host node, and the pages shared up to there, of `shared` in all."""
        node = self
        while node.host:
            assert node.parent is not None
            node, shared = node.parent, node.parent.end
        return node, shared

    def shared_with(self, tokens: list[int], start: int, pages: int, page_size: int) -> int:
        """Pages that this node shares with `tokens` from page `start` on, of `pages` in all: at least one, by which it
        was found.
        """
        same, end = 1, min(len(self.pages), pages - start)
        # By halves: most prompts share all of a node, and no token is read more than twice.
        middle = end
        while same < end:
            theirs = tokens[(start + same) * page_size : (start + middle) * page_size]
            if self.tokens[same * page_size : middle * page_size] == theirs:
                same = middle
            else:
                end = middle - 1
            middle = (same + end + 1) // 2
        return same


class Match(NamedTuple):
    """Whole pages of a prefix that the tree has on the device, how many of them could be evicted now, and the pages
    that follow them in the host pool."""

    pages: int
    unlocked: int
    host: int = 0


class Evicted(NamedTuple):
    """Pages that are the caller's, and the slots that are to take the bytes of some of them: page by slot. `nodes` have
    these slots, but for those that are withdrawn already."""

    pages: list[int]
    moved: dict[int, int]
    nodes: list[Node]


@dataclass(slots=True)
class Bookmark:
    """Where the latest search for one text ended. The next one for it goes on from what is left of that."""

    node: Node | None = None
    pages: int = 0

    def left_of(self, root: Node) -> tuple[Node, int]:
        """The last node that still shares a page with the text, and all pages shared up to there. Meanwhile nodes are
        split, shortened and removed; they never grow.
        """
        node = self.node or root
        while node.withdrawn:
            if node.parent is None:
                return root, 0
            node = node.parent
        shared = min(self.pages, node.end)
        while node.parent is not None and shared <= node.end - len(node.pages):
            node = node.parent
        return node, shared
