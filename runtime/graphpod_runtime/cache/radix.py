"""The prefix cache: a radix tree over whole pages of KV, by the tokens whose keys and values they hold.

A node holds a run of pages, and each of its children begins with another page. A path from a root spells the tokens of
a prefix. Every adapter and salt has a root of its own: the same tokens have other keys and values there, or must not be
seen. Pages in the tree are read-only.

A lock on a node locks its path. Only unlocked leaves are evicted, the least recently used first and from their ends, so
what is left of a prefix is always a prefix. A page belongs to the tree from `insert` until `evict`, `withdraw` or
`unlock` hands it back. Pure: no device, no torch.

With slots of a host pool an evicted page stays in the tree: its node becomes a host node, whose pages are slots. Host
nodes stand below all others and are never locked. The least recently used leaves among them go when slots run out.
`insert` over a host node makes it an ordinary one again and frees its slots, unless they are still read.
"""

import itertools
from collections.abc import Sequence

from graphpod_runtime.cache.lru_leaves import Leaves
from graphpod_runtime.cache.radix_node import Bookmark, Evicted, Match, Namespace, Node


class RadixTree:
    """Prefixes in pages of `page_size` tokens. The caller owns the allocator: the tree only says which pages it has."""

    def __init__(self, page_size: int, slots: int = 0) -> None:
        """`slots`: pages that the host pool has room for."""
        self.page_size = page_size
        self.slots = slots
        self.size = 0
        """Pages of the device that the tree owns."""
        self.evictable = 0
        """Those of them that `evict` can give now."""
        self.evicted = 0
        """Pages that `evict` has given since the start."""
        self.host_evicted = 0
        """Pages that the host pool had no room for any more, or never."""
        self.roots: dict[Namespace, Node] = {}
        """That of each namespace of which anything is there."""
        self._leaves = Leaves[Node](self._is_free_leaf)
        self._host_leaves = Leaves[Node](self._is_host_leaf)
        self._free_slots = list(range(slots - 1, -1, -1))
        self._nodes = 0
        self._clock = itertools.count(1)

    def match(self, tokens: list[int], limit: int, namespace: Namespace, bookmark: Bookmark | None = None) -> Match:
        """How much of tokens[:limit] is there. Changes nothing but `bookmark`, which belongs to these tokens and this
        limit.
        """
        node, found = self._find(tokens, limit, namespace, bookmark)
        if node is None:
            return Match(0, 0)
        node, shared = node.on_device(found)
        above = node.end - len(node.pages)
        unlocked = 0 if node.locks else shared - above
        if node.parent is not None:
            unlocked += sum(len(one.pages) for one in node.parent.path if not one.locks)
        return Match(shared, unlocked, found - shared)

    def lock(self, tokens: list[int], limit: int, namespace: Namespace, bookmark: Bookmark | None = None) -> Node:
        """Locks the path of the longest prefix of tokens[:limit] on the device; the node at its end, a root where
        nothing is cached. `bookmark` as in `match`.
        """
        node, shared = self._find(tokens, limit, namespace, bookmark)
        if node is None:
            node = self.roots[namespace] = Node(namespace, None, [], [], 0)
        else:
            node, shared = node.on_device(shared)
            if shared < node.end:
                node = self._split(node, shared)
        self._lock(node)
        return node

    def lock_path(self, node: Node) -> Node:
        """Locks the path of `node` once more, which is locked; `node`."""
        self._lock(node)
        return node

    def host_slots(self, node: Node, tokens: list[int], limit: int) -> list[int]:
        """The slots of the pages of tokens[:limit] that follow `node`. They are used now, so others go before them."""
        last, shared = self._descend(node, node.end, tokens, limit)
        runs, now = [], next(self._clock)
        for one in last.path:
            if not one.host:
                break
            one.used = now
            runs.append(one.pages[: shared - one.end] if shared < one.end else one.pages)
        if runs and not last.children:
            self._host_leaves.note(last, self._nodes)
        return [slot for run in reversed(runs) for slot in run]

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
        """Whether the tree has the page of `tokens` that follows `node` on the device."""
        child = node.children.get(self._key(tokens, node.end))
        return child is not None and not child.host

    def insert(
        self, node: Node, tokens: list[int], pages: Sequence[int], *, reads_slots: bool = False
    ) -> tuple[Node, list[int]]:
        """Enters `pages`, which hold the keys and values of `tokens` from their beginning and start with the pages of
        `node`, which the caller has locked. The lock moves to the node returned, at the end of `pages`. The pages
        returned are the tree's from now on. The others stay the caller's: the tree had their tokens already. Where it
        had them in the host pool, their slots are free now; with `reads_slots` not before `release`.
        """
        if node.withdrawn:
            return node, []
        whole = len(pages) * self.page_size
        last, shared = self._descend(node, node.end, tokens, whole)
        if shared < last.end:
            last = self._split(last, shared)
        taken = self._revived(last, pages, reads_slots)
        if new := list(pages[shared:]):
            text = tokens[shared * self.page_size : whole]
            child = Node(node.namespace, last, text, new, len(pages))
            last.children[self._key(text, 0)] = child
            last.below += 1
            self._nodes += 1
            taken += new
            last = child
        self.size += len(taken)
        self.evictable += len(taken)
        if last is not node:
            self._lock(last)
            self.unlock(node)
        return last, taken

    def evict(self, count: int) -> Evicted:
        """Up to `count` pages of unlocked leaves, least recently used first. They are the caller's, who copies those
        that have a slot now before their next owner writes to them."""
        freed, moved, nodes = list[int](), dict[int, int](), list[Node]()
        while len(freed) < count and (node := self._leaves.take()) is not None:
            cut = max(0, len(node.pages) - (count - len(freed)))
            gone = node.pages[cut:]
            freed += reversed(gone)
            slots = self._slots_for(len(gone), moved)
            moved.update(zip(slots, gone, strict=False))
            if (below := self._leave_device(node, cut, slots)) is not None:
                nodes.append(below)
        self.size -= len(freed)
        self.evictable -= len(freed)
        self.evicted += len(freed)
        return Evicted(freed, moved, nodes)

    def add_slots(self, more: int) -> None:
        """The host pool has grown."""
        self._free_slots += range(self.slots + more - 1, self.slots - 1, -1)
        self.slots += more

    def take_slots(self, count: int, tokens: list[int], namespace: Namespace) -> list[int]:
        """Up to `count` slots that no node has, until `adopt` or `release`. The prefix of `tokens` is used now, so
        others go before it."""
        node, found = self._find(tokens, len(tokens), namespace, None)
        if node is not None:
            self.host_slots(node.on_device(found)[0], tokens, len(tokens))
        return self._slots_for(count, {})

    def adopt(self, slots: list[int], tokens: list[int], namespace: Namespace) -> list[int]:
        """Enters `slots`, which hold the last of the whole pages of `tokens`. Those returned have no node: the tree has
        their pages by now, or not what is in front of them any more."""
        whole = len(tokens) // self.page_size
        node, shared = self._find(tokens, len(tokens), namespace, None)
        known = shared - (whole - len(slots))
        if known < 0 or known == len(slots):
            return slots
        if node is None:
            node = self.roots[namespace] = Node(namespace, None, [], [], 0)
        elif shared < node.end:
            node = self._split(node, shared)
        text = tokens[shared * self.page_size : whole * self.page_size]
        child = Node(namespace, node, text, slots[known:], whole, host=True)
        child.used = next(self._clock)
        node.children[self._key(text, 0)] = child
        self._nodes += 1
        self._settle(child)
        return slots[:known]

    def release(self, slots: Sequence[int]) -> None:
        """Slots of `insert` that are read no more."""
        self._free_slots += slots

    def clear_host(self) -> None:
        """Takes all host nodes out: what their slots hold is not certain."""
        open_nodes = list(self.roots.values())
        while open_nodes:
            one = open_nodes.pop()
            for key, child in list(one.children.items()):
                if child.host:
                    del one.children[key]
                    self._forget_all(child)
                else:
                    open_nodes.append(child)
            self._settle(one)

    @property
    def host_size(self) -> int:
        """Slots of the host pool that are in use."""
        return self.slots - len(self._free_slots)

    def withdraw(self, node: Node) -> list[int]:
        """The path of `node`, and what follows it, is not found any more: its pages may hold NaN. Those that no
        sequence reads are the caller's, not clean; the others come back from `unlock`.
        """
        top = next((one for one in node.path if one.parent is not None and one.parent.parent is None), None)
        if top is None or top.withdrawn:
            return []
        assert top.parent is not None
        del top.parent.children[self._key(top.tokens, 0)]
        top.parent.below -= 1
        freed = self._forget_all(top)
        self._settle(top.parent)
        return freed

    def _find(
        self, tokens: list[int], limit: int, namespace: Namespace, bookmark: Bookmark | None
    ) -> tuple[Node | None, int]:
        """The last node that shares a page with tokens[:limit], and all pages shared, those in the host pool included;
        no node without a root."""
        root = self.roots.get(namespace)
        if root is None:
            return None, 0
        bookmark = bookmark or Bookmark()
        bookmark.node, bookmark.pages = self._descend(*bookmark.left_of(root), tokens, limit)
        return bookmark.node, bookmark.pages

    def _descend(self, node: Node, shared: int, tokens: list[int], limit: int) -> tuple[Node, int]:
        """As `_find`, from a `node` that shares its pages up to `shared`."""
        pages = limit // self.page_size
        while shared < pages and shared == node.end:
            child = node.children.get(self._key(tokens, shared))
            if child is None:
                break
            node, shared = child, shared + child.shared_with(tokens, shared, pages, self.page_size)
        return node, shared

    def _split(self, node: Node, end: int) -> Node:
        """Cuts `node` at page `end` from the root; the upper part. Locks below it stay."""
        assert node.parent is not None
        cut = len(node.pages) - (node.end - end)
        at = cut * self.page_size
        upper = Node(node.namespace, node.parent, node.tokens[:at], node.pages[:cut], end, node.host)
        upper.locks, upper.used, upper.below = node.locks, node.used, int(not node.host)
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
        if node.parent is None:
            if not (node.children or node.locks or node.withdrawn):
                node.withdrawn = True
                del self.roots[node.namespace]
        elif self._is_free_leaf(node):
            self._leaves.note(node, self._nodes)
        elif self._is_host_leaf(node):
            self._host_leaves.note(node, self._nodes)

    def _is_free_leaf(self, node: Node) -> bool:
        return not (node.host or node.below or node.locks or node.withdrawn)

    def _is_host_leaf(self, node: Node) -> bool:
        return node.host and not node.children and not node.withdrawn

    def _revived(self, last: Node, pages: Sequence[int], reads_slots: bool) -> list[int]:
        """The host nodes of the path to `last` are ordinary ones again, with their share of `pages`; that share."""
        runs: list[list[int]] = []
        for one in last.path:
            if not one.host:
                break
            assert one.parent is not None
            if not reads_slots:
                self._free_slots += one.pages
            one.pages, one.host = list(pages[one.end - len(one.pages) : one.end]), False
            one.parent.below += 1
            runs.append(one.pages)
        return [page for run in reversed(runs) for page in run]

    def _slots_for(self, count: int, moved: dict[int, int]) -> list[int]:
        """Up to `count` slots, ascending: neighbours are one copy. Host leaves that go for them are not `moved` there
        any more."""
        while len(self._free_slots) < min(count, self.slots):
            leaf = self._host_leaves.take()
            if leaf is None:
                break
            cut = max(0, len(leaf.pages) - (count - len(self._free_slots)))
            for slot in leaf.pages[cut:]:
                moved.pop(slot, None)
            self._shorten_host(leaf, cut)
        return sorted(self._free_slots.pop() for _ in range(min(count, len(self._free_slots))))

    def _shorten_host(self, leaf: Node, cut: int) -> None:
        """Of a host leaf only the first `cut` pages stay."""
        self._free_slots += leaf.pages[cut:]
        self.host_evicted += len(leaf.pages) - cut
        if not cut:
            self._remove(leaf)
            return
        leaf.end -= len(leaf.pages) - cut
        del leaf.pages[cut:], leaf.tokens[cut * self.page_size :]
        self._settle(leaf)

    def _leave_device(self, leaf: Node, cut: int, slots: list[int]) -> Node | None:
        """The pages of `leaf` from `cut` on are not its own any more; the first of them are in `slots`, of the node
        returned."""
        lost, lower = len(leaf.pages) - cut - len(slots), None
        self.host_evicted += lost if self.slots else 0
        if not cut and not slots:
            self._remove(leaf)
            return None
        if lost:
            # No host leaf had a slot to give, so none stands below.
            leaf.end -= lost
            del leaf.tokens[(cut + len(slots)) * self.page_size :]
        if not cut:
            assert leaf.parent is not None
            leaf.pages, leaf.host = slots, True
            leaf.parent.below -= 1
            self._settle(leaf.parent)
            lower = leaf
        elif slots:
            at = cut * self.page_size
            lower = Node(leaf.namespace, leaf, leaf.tokens[at:], slots, leaf.end, host=True)
            lower.children, lower.used, leaf.children = leaf.children, leaf.used, {self._key(leaf.tokens, cut): lower}
            for child in lower.children.values():
                child.parent = lower
            leaf.end -= len(slots)
            del leaf.pages[cut:], leaf.tokens[at:]
            self._nodes += 1
            self._settle(lower)
        else:
            del leaf.pages[cut:]
        self._settle(leaf)
        return lower

    def _remove(self, leaf: Node) -> None:
        """Takes a leaf out; the node above it may be a leaf now."""
        assert leaf.parent is not None
        del leaf.parent.children[self._key(leaf.tokens, 0)]
        leaf.parent.below -= int(not leaf.host)
        leaf.withdrawn = True
        self._nodes -= 1
        self._settle(leaf.parent)

    def _forget_all(self, top: Node) -> list[int]:
        """Withdraws `top`, which its parent does not have any more, and all below it; the pages without readers."""
        freed, open_nodes = list[int](), [top]
        while open_nodes:
            one = open_nodes.pop()
            one.withdrawn = True
            open_nodes += one.children.values()
            if one.host:
                self._free_slots += one.pages
                one.pages, self._nodes = [], self._nodes - 1
            elif not one.locks:
                self.evictable -= len(one.pages)
                freed += self._forget(one)
        return freed

    def _forget(self, node: Node) -> list[int]:
        """The pages of a withdrawn node without readers."""
        self._nodes -= 1
        self.size -= len(node.pages)
        pages, node.pages = node.pages, []
        return pages

    def _key(self, tokens: list[int], page: int) -> tuple[int, ...]:
        return tuple(tokens[page * self.page_size : (page + 1) * self.page_size])
