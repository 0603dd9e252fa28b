"""The radix tree against a set of prefixes."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from graphpod_runtime.cache.radix import RadixTree
from graphpod_runtime.cache.radix_node import Bookmark, Match, Namespace, Node
from tests.tries import tries

SIZE = 2
HERE: Namespace = ("", "")
Prefix = tuple[Namespace, tuple[int, ...]]


def put(tree: RadixTree, tokens: list[int], pages: list[int], namespace: Namespace = HERE) -> list[int]:
    """Enters `tokens` and reads them no more; the pages that the tree took."""
    node, taken = tree.insert(tree.lock(tokens, 0, namespace), tokens, pages)
    assert tree.unlock(node) == []
    return taken


def test_a_prefix_is_found_in_whole_pages_up_to_the_limit() -> None:
    tree = RadixTree(SIZE)
    assert put(tree, [1, 2, 3, 4, 5, 6], [11, 12, 13]) == [11, 12, 13]
    for tokens, limit, pages in (
        ([1, 2, 3, 4, 5, 6, 7], 6, 3),
        ([1, 2, 3, 4, 5, 6], 5, 2),
        ([1, 2, 3, 9, 5, 6], 6, 1),
        ([1, 9], 2, 0),
        ([1, 2, 3, 4, 5, 6], 1, 0),
    ):
        assert tree.match(tokens, limit, HERE) == Match(pages, pages), tokens
    assert tree.match([1, 2, 3, 4], 4, ("", "salt")) == tree.match([1, 2, 3, 4], 4, ("adapter", "")) == Match(0, 0)
    node = tree.lock([1, 2, 3, 4, 9, 9], 5, HERE)
    assert tree.pages(node) == [11, 12]
    assert (tree.evictable, tree.size) == (1, 3)
    assert tree.evict(3).pages == [13]


def test_two_continuations_of_one_prefix_share_its_pages() -> None:
    tree = RadixTree(SIZE)
    put(tree, [1, 2, 3, 4], [11, 12])
    assert put(tree, [1, 2, 5, 6], [21, 22]) == [22], "the tree had the first page"
    node = tree.lock([1, 2, 5, 6, 0], 4, HERE)
    assert tree.pages(node) == [11, 22]


def test_the_least_recently_used_leaf_goes_first_and_from_its_end() -> None:
    tree = RadixTree(SIZE)
    put(tree, [1, 1, 2, 2], [11, 12])
    put(tree, [3, 3, 4, 4], [13, 14])
    put(tree, [5, 5], [15])
    tree.unlock(tree.lock([1, 1, 2, 2], 4, HERE))
    assert tree.evict(1).pages == [14]
    assert tree.match([3, 3, 4, 4], 4, HERE).pages == 1
    assert tree.evict(3).pages == [13, 15, 12]
    assert tree.evict(9).pages == [11]
    assert (tree.size, tree.evictable, tree.evicted) == (0, 0, 5)


def test_a_prefix_outlives_what_followed_it_when_it_was_used_later() -> None:
    tree = RadixTree(SIZE)
    put(tree, [1, 1, 2, 2], [11, 12])
    put(tree, [3, 3], [13])
    tree.unlock(tree.lock([1, 1, 9, 9], 4, HERE))
    assert tree.evict(3).pages == [12, 13, 11]


def test_what_is_withdrawn_is_not_found_and_its_pages_come_back_with_their_last_reader() -> None:
    tree = RadixTree(SIZE)
    put(tree, [1, 1, 2, 2], [11, 12])
    put(tree, [1, 1, 3, 3], [11, 13])
    put(tree, [4, 4], [14])
    reader = tree.lock([1, 1, 2, 2], 4, HERE)
    assert tree.withdraw(reader) == [13]
    assert tree.match([1, 1, 2, 2], 4, HERE).pages == 0
    assert tree.insert(reader, [1, 1, 2, 2, 5, 5], [11, 12, 15]) == (reader, []), "nothing follows what is withdrawn"
    assert sorted(tree.unlock(reader)) == [11, 12]
    assert (tree.size, tree.evictable) == (1, 1)
    assert put(tree, [1, 1, 2, 2], [21, 22]) == [21, 22]


def test_a_text_that_leaves_a_long_run_of_pages_is_found_up_to_there() -> None:
    text = list(range(100, 140))
    for limit in (40, 33):
        for same in range(40):
            tree = RadixTree(SIZE)
            put(tree, text, list(range(1, 21)))
            tokens = [*text[:same], 7, *text[same + 1 :]]
            assert tree.match(tokens, limit, HERE).pages == min(same, limit) // SIZE


class Noting(list[int]):
    """Tokens that note how many of them are read."""

    read = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        self.read += len(found)
        return found


def test_a_prompt_that_waits_is_compared_with_the_tree_once() -> None:
    """Each of many requests in the queue is looked up in every pass."""
    tree, bookmark = RadixTree(SIZE), Bookmark()
    text = list(range(1000))
    put(tree, text[:600], list(range(1, 301)))
    tokens = Noting(text)
    assert tree.match(tokens, 999, HERE, bookmark).pages == 300
    first = tokens.read
    assert first <= 2 * 1000
    put(tree, [5] * 10, [991, 992, 993, 994, 995])
    assert len(tree.evict(20).pages) == 20
    assert tree.match(tokens, 999, HERE, bookmark).pages == 280
    put(tree, text[:562], [*range(1, 281), 998])
    assert tree.match(tokens, 999, HERE, bookmark).pages == 281
    assert tokens.read - first <= 4 * SIZE


def test_an_evicted_page_stays_in_the_tree_with_a_slot_and_comes_back_to_another_page() -> None:
    tree = RadixTree(SIZE, slots=3)
    put(tree, [1, 1, 2, 2, 3, 3], [11, 12, 13])
    pages, moved, (below,) = tree.evict(2)
    assert (pages, moved) == ([13, 12], {0: 12, 1: 13})
    assert (below.text, below.pages, below.end) == ([1, 1, 2, 2, 3, 3], [0, 1], 3)
    assert tree.match([1, 1, 2, 2, 3, 3], 6, HERE) == Match(1, 1, 2)
    assert tree.match([1, 1, 2, 2, 9, 9], 6, HERE) == Match(1, 1, 1)
    node = tree.lock([1, 1, 2, 2, 3, 3], 5, HERE)
    assert tree.host_slots(node, [1, 1, 2, 2, 3, 3], 5) == [0]
    node, taken = tree.insert(node, [1, 1, 2, 2, 3, 3], [11, 22])
    assert (taken, tree.pages(node), tree.host_size) == ([22], [11, 22], 1)
    assert tree.match([1, 1, 2, 2, 3, 3], 6, HERE) == Match(2, 0, 1)


def test_a_full_host_pool_loses_its_least_recently_used_pages_from_the_ends() -> None:
    tree = RadixTree(SIZE, slots=3)
    put(tree, [1, 1, 2, 2], [11, 12])
    put(tree, [3, 3], [13])
    put(tree, [4, 4, 5, 5], [14, 15])
    tree.evict(3)
    node = tree.lock([1, 1, 2, 2], 4, HERE)
    assert len(tree.host_slots(node, [1, 1, 2, 2], 4)) == 2, "used just now"
    tree.unlock(node)
    assert tree.evict(2).pages == [15, 14]
    found = {text: tree.match([*text], len(text), HERE).host for text in ((1, 1, 2, 2), (3, 3), (4, 4, 5, 5))}
    assert found == {(1, 1, 2, 2): 1, (3, 3): 0, (4, 4, 5, 5): 2}
    assert (tree.host_size, tree.host_evicted) == (3, 2)


def test_what_is_withdrawn_leaves_the_host_pool_at_once() -> None:
    tree = RadixTree(SIZE, slots=3)
    put(tree, [1, 1, 2, 2], [11, 12])
    assert tree.evict(1).moved == {0: 12}
    node = tree.lock([1, 1], 2, HERE)
    assert (tree.withdraw(node), tree.host_size) == ([], 0)
    assert tree.unlock(node) == [11]


@dataclass
class Naive:
    """The tree, as a dictionary of prefixes to pages and a list of readers."""

    tree: RadixTree
    pages: dict[Prefix, int] = field(default_factory=dict)
    host: dict[Prefix, int] = field(default_factory=dict)
    """Prefixes by their slots in the host pool."""
    readers: list[tuple[Node, Namespace, list[int]]] = field(default_factory=list)
    """With the tokens that each locks."""
    bookmarks: list[tuple[list[int], Namespace, Bookmark]] = field(default_factory=list)
    """Of texts that are looked up again and again."""
    leaving: set[int] = field(default_factory=set)
    """Withdrawn pages that somebody reads."""
    held: list[tuple[list[int], Namespace, list[int]]] = field(default_factory=list)
    """Texts whose last pages are on their way to slots."""
    fresh: int = 0

    def prefixes(self, tokens: list[int], namespace: Namespace) -> list[Prefix]:
        return [(namespace, tuple(tokens[:end])) for end in range(SIZE, len(tokens) + 1, SIZE)]

    def hit(self, tokens: list[int], namespace: Namespace) -> list[Prefix]:
        found = []
        for prefix in self.prefixes(tokens, namespace):
            if prefix not in self.pages:
                break
            found.append(prefix)
        return found

    def behind(self, tokens: list[int], namespace: Namespace) -> list[Prefix]:
        """What the host pool has of a text behind the pages of the device."""
        found = []
        for prefix in self.prefixes(tokens, namespace)[len(self.hit(tokens, namespace)) :]:
            if prefix not in self.host:
                break
            found.append(prefix)
        return found

    @property
    def locked(self) -> set[Prefix]:
        return {
            prefix
            for node, namespace, tokens in self.readers
            if not node.withdrawn
            for prefix in self.prefixes(tokens, namespace)
        }

    def wait(self, tokens: list[int], namespace: Namespace) -> None:
        self.bookmarks.append((tokens, namespace, Bookmark()))

    def admit(self, index: int) -> None:
        tokens, namespace, bookmark = self.bookmarks.pop(index % len(self.bookmarks))
        hit = self.hit(tokens, namespace)
        node = self.tree.lock(tokens, len(tokens), namespace, bookmark)
        assert self.tree.pages(node) == [self.pages[prefix] for prefix in hit]
        self.readers.append((node, namespace, tokens[: len(hit) * SIZE]))

    def read(self, tokens: list[int], namespace: Namespace) -> None:
        hit = self.hit(tokens, namespace)
        unlocked = len(set(hit) - self.locked)
        behind = self.behind(tokens, namespace)
        assert self.tree.match(tokens, len(tokens), namespace) == Match(len(hit), unlocked, len(behind))
        node = self.tree.lock(tokens, len(tokens), namespace)
        assert self.tree.pages(node) == [self.pages[prefix] for prefix in hit]
        self.readers.append((node, namespace, tokens[: len(hit) * SIZE]))

    def write(self, index: int, more: list[int]) -> None:
        node, namespace, read = self.readers.pop(index)
        tokens = [*read, *more]
        whole = self.prefixes(tokens, namespace)
        new = range(self.fresh, self.fresh + len(whole) - len(read) // SIZE)
        self.fresh = new.stop
        pages = [*(self.pages[prefix] for prefix in whole[: len(read) // SIZE]), *new] if not node.withdrawn else []
        node, taken = self.tree.insert(node, tokens, pages)
        expected = [] if node.withdrawn else [page for prefix, page in zip(whole, pages, strict=True)
                                              if prefix not in self.pages]  # fmt: skip
        assert taken == expected
        self.pages |= {prefix: page for prefix, page in zip(whole, pages, strict=False) if page in set(taken)}
        for prefix in self.pages:
            self.host.pop(prefix, None)
        self.readers.append((node, namespace, read if node.withdrawn else tokens[: len(whole) * SIZE]))

    def leave(self, index: int) -> None:
        node, _, _ = self.readers.pop(index)
        freed = self.tree.unlock(node)
        assert set(freed) <= self.leaving
        assert len(freed) == len(set(freed))
        self.leaving -= set(freed)

    def load(self, index: int, more: list[int]) -> None:
        """A reader goes on with what the host pool has of its text."""
        node, namespace, read = self.readers.pop(index)
        tokens, slots = [*read, *more], list[int]()
        if not node.withdrawn:
            slots = self.tree.host_slots(node, tokens, len(tokens))
            behind = self.behind(tokens, namespace) if self.hit(tokens, namespace) == self.hit(read, namespace) else []
            assert slots == [self.host[prefix] for prefix in behind]
        if slots:
            pages = list(range(self.fresh, self.fresh + len(slots)))
            self.fresh += len(slots)
            node, taken = self.tree.insert(node, tokens, [*self.tree.pages(node), *pages])
            assert taken == pages
            self.pages |= dict(zip(behind, pages, strict=True))
            for prefix in behind:
                del self.host[prefix]
            read = list(behind[-1][1])
        self.readers.append((node, namespace, read))

    def clear(self) -> None:
        self.tree.clear_host()
        self.host = {}

    def evict(self, count: int) -> None:
        locked, size = self.locked, len(self.pages)
        before = self.tree.host_evicted
        freed, moved, nodes = self.tree.evict(count)
        assert len(freed) == len(set(freed)) == min(count, size - len(locked))
        gone = {prefix for prefix, page in self.pages.items() if page in freed}
        assert len(gone) == len(freed)
        assert not gone & locked
        by_page = {page: prefix for prefix, page in self.pages.items()}
        self.pages = {prefix: page for prefix, page in self.pages.items() if prefix not in gone}
        for namespace, tokens in self.pages:
            assert len(tokens) == SIZE or (namespace, tokens[:-SIZE]) in self.pages, "a prefix without its beginning"
        assert set(moved.values()) <= set(freed)
        filled = len(self.host) + len(freed)
        # What the pool gave up is seen in the tree: each other prefix must still have its slot.
        self.host = {prefix: slot for prefix, slot in self.host.items() if slot not in moved}
        self.host |= {by_page[page]: slot for slot, page in moved.items()}
        self.host = {prefix: slot for prefix, slot in self.host.items() if self.has(prefix, slot)}
        if self.tree.slots:
            assert self.tree.host_evicted - before == filled - len(self.host), "every page that is lost is counted"
        room = self.tree.slots - sum(len(slots) for *_, slots in self.held)
        assert len(self.host) == min(filled, room), "none goes while there is room"
        stored = [one for one in nodes if not one.withdrawn]
        for one in stored:
            names = self.prefixes(one.text, one.namespace)[one.end - len(one.pages) :]
            assert [self.host[name] for name in names] == one.pages
        assert {slot for one in stored for slot in one.pages} == set(moved)

    def take(self, tokens: list[int], namespace: Namespace) -> None:
        """Slots for what follows the tree's part of a text."""
        first = len(self.hit(tokens, namespace)) + len(self.behind(tokens, namespace))
        wanted = len(tokens) // SIZE - first
        slots = self.tree.take_slots(wanted, tokens, namespace)
        self.host = {prefix: slot for prefix, slot in self.host.items() if self.has(prefix, slot)}
        assert len(slots) == len(set(slots)) <= wanted
        self.held.append((tokens[: (first + len(slots)) * SIZE], namespace, slots))

    def adopt(self, index: int) -> None:
        """Their pages have come."""
        tokens, namespace, slots = self.held.pop(index % len(self.held))
        first = len(tokens) // SIZE - len(slots)
        known = len(self.hit(tokens, namespace)) + len(self.behind(tokens, namespace)) - first
        unused = self.tree.adopt(slots, tokens, namespace)
        assert unused == (slots if known < 0 else slots[:known])
        if known >= 0:
            self.host |= dict(zip(self.prefixes(tokens, namespace)[first + known :], slots[known:], strict=True))
        self.tree.release(unused)

    def has(self, prefix: Prefix, slot: int) -> bool:
        """Whether the host pool has the last page of a prefix there. Uses nothing: that would change what goes next."""
        namespace, tokens = prefix
        node = self.tree.roots.get(namespace)
        last, shared = self.tree._descend(node, 0, list(tokens), len(tokens)) if node else (None, 0)
        if last is None or shared * SIZE != len(tokens) or not last.host:
            return False
        return last.pages[shared - last.end - 1] == slot

    def withdraw(self, index: int) -> None:
        node, namespace, tokens = self.readers[index]
        if node.withdrawn or not tokens:
            assert self.tree.withdraw(node) == []
            return
        locked = self.locked
        doomed = {
            prefix for prefix in self.pages if prefix[0] == namespace and prefix[1][:SIZE] == tuple(tokens[:SIZE])
        }
        self.host = {prefix: slot for prefix, slot in self.host.items()
                     if prefix[0] != namespace or prefix[1][:SIZE] != tuple(tokens[:SIZE])}  # fmt: skip
        freed = self.tree.withdraw(node)
        assert sorted(freed) == sorted(self.pages[prefix] for prefix in doomed - locked)
        self.leaving |= {self.pages.pop(prefix) for prefix in doomed} - set(freed)

    def check(self) -> None:
        assert self.tree.size == len(self.pages) + len(self.leaving)
        locked = self.locked
        assert self.tree.evictable == len(self.pages) - len(locked)
        assert not self.pages.keys() & self.host.keys()
        in_use = [*self.host.values(), *(slot for *_, slots in self.held for slot in slots)]
        assert self.tree.host_size == len(in_use) == len(set(in_use))
        for namespace, tokens in self.host:
            before = namespace, tokens[:-SIZE]
            assert len(tokens) == SIZE or before in self.pages or before in self.host, "a prefix without its beginning"
        for tokens, namespace, bookmark in self.bookmarks:
            hit = self.hit(tokens, namespace)
            expected = Match(len(hit), len(set(hit) - locked), len(self.behind(tokens, namespace)))
            assert self.tree.match(tokens, len(tokens), namespace, bookmark) == expected


TOKENS = st.lists(st.integers(0, 1), max_size=9)
STEPS = st.one_of(
    st.tuples(st.just("read"), TOKENS, st.sampled_from([HERE, ("", "salt")])),
    st.tuples(st.just("wait"), TOKENS, st.sampled_from([HERE, ("", "salt")])),
    st.tuples(st.just("admit"), st.integers(0, 9)),
    st.tuples(st.just("write"), st.integers(0, 9), TOKENS),
    st.tuples(st.just("leave"), st.integers(0, 9)),
    st.tuples(st.just("evict"), st.integers(0, 5)),
    st.tuples(st.just("withdraw"), st.integers(0, 9)),
    st.tuples(st.just("load"), st.integers(0, 9), TOKENS),
    st.tuples(st.just("take"), TOKENS, st.sampled_from([HERE, ("", "salt")])),
    st.tuples(st.just("adopt"), st.integers(0, 9)),
    st.just(("clear",)),
)


@tries(400)
@given(steps=st.lists(STEPS, max_size=50), slots=st.sampled_from([0, 1, 3, 100]))
def test_the_tree_is_a_dictionary_of_prefixes(steps: list[Any], slots: int) -> None:
    naive = Naive(RadixTree(SIZE, slots))
    for kind, *rest in steps:
        if kind in ("write", "leave", "withdraw", "load"):
            if not naive.readers:
                continue
            rest[0] %= len(naive.readers)
        if (kind == "admit" and not naive.bookmarks) or (kind == "adopt" and not naive.held):
            continue
        getattr(naive, kind)(*rest)
        naive.check()
    while naive.readers:
        naive.leave(0)
        naive.check()
    while naive.held:
        naive.adopt(0)
        naive.check()
    naive.evict(len(naive.pages))
    naive.clear()
    naive.check()
    assert (naive.tree.size, naive.tree.roots, naive.tree._nodes) == (0, {}, 0)
    assert not naive.leaving
