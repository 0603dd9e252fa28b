"""Prefixes of waiting sequences that come from files.

A sequence in the queue whose prefix goes on in files waits for these pages while others are admitted. They are read
into slots of the host pool that no node has. Then they enter the tree as host nodes, and the sequence is admitted as
any other whose prefix is on the host. It waits no longer than computing the tokens of these pages would take: a disk
that does not answer delays a request by no more than that.
"""

from collections import deque
from collections.abc import Sequence as List
from dataclasses import dataclass

from graphpod_runtime.cache.files.file_tier import FileFailure, FileTier, Left, Reading
from graphpod_runtime.cache.host_tier import HostTier
from graphpod_runtime.cache.moves import Awaited
from graphpod_runtime.cache.radix import RadixTree
from graphpod_runtime.cache.radix_node import Match, Namespace, Node

LONG = 1 << 10
"""Pages next to which a load's own time does not count."""


@dataclass(eq=False, slots=True)
class _Coming:
    """Pages from `first` on, for one sequence."""

    namespace: Namespace
    tokens: list[int]
    first: int
    reading: Reading
    behind: list[Awaited]
    """Copies to these slots, which must have landed before anything is read."""
    until: float
    """When the sequence waits no longer."""
    begun: bool = False
    over: bool = False
    pages: int = 0
    """That came, once it is over."""


class FileReads:
    """Of one KV space."""

    def __init__(self, host: HostTier, files: FileTier, tree: RadixTree) -> None:
        self._host, self._files, self._tree = host, files, tree
        self._of: dict[object, _Coming | None] = {}
        """Of each sequence that waits, and was looked for: what comes, or came; None: nothing does."""
        self._brought: dict[object, int] = {}
        """Tokens of sequences without a pass that came from files."""
        self._coming: list[_Coming] = []
        """What has slots."""
        self._left: deque[tuple[list[Awaited], Left]] = deque()
        """Pages that are to be saved, behind their copies to the host."""
        self._distrusts = False
        """A copy has failed half done since the slots were last known to be quiet."""

    def asked(self, sequence: object) -> bool:
        """Whether files were looked at for `sequence`, which waits."""
        return sequence in self._of

    def ask(self, sequence: object, namespace: Namespace, tokens: list[int], match: Match) -> None:
        """Looks for `sequence`, of whose `tokens` the tree has a `match`."""
        self._of[sequence] = self._found(namespace, tokens, match)

    def waits(self, sequence: object) -> bool:
        """Whether `sequence` is to wait on for what was found."""
        coming = self._of[sequence]
        if coming is None or coming.over or coming.until < 0:
            return False
        if self._files.clock() < coming.until:
            return True
        self._files.failed(FileFailure.Late, pages=len(coming.reading.slots))
        self._files.wait_seconds += self._files.clock() - coming.reading.began
        coming.until = -1.0
        return False

    def admitted(self, sequence: object, loads: int) -> None:
        """`sequence` waits no more, and loads so many tokens from the host."""
        coming = self._of.pop(sequence, None)
        came = 0 if coming is None else coming.pages * self._tree.page_size
        self._brought[sequence] = min(came, loads)

    def begins(self, sequence: object) -> None:
        """What `sequence` loads cannot fail any more."""
        self._files.hit_tokens += self._brought.pop(sequence, 0)

    def gone(self, sequence: object) -> None:
        """`sequence` waits no more, or has no pages any more."""
        self._of.pop(sequence, None)
        self._brought.pop(sequence, None)

    def stored(self, nodes: List[Node]) -> None:
        """The pages of these host nodes were called to the host."""
        for node in nodes:
            if not node.withdrawn:
                numbered = [(slot, self._files.number(slot)) for slot in node.pages]
                left = Left(node.namespace, node.text, node.end - len(node.pages), numbered)
                self._left.append((self._host.filling(node.pages), left))

    @property
    def worth_writing(self) -> bool:
        """Whether an engine as fast as this one would read a page of a long prefix, as far as is known of the disk."""
        return self._pays(LONG)

    @property
    def unsaved(self) -> int:
        """Pages on their way to the host, of which no file can be written yet."""
        return sum(len(left.slots) for _, left in self._left)

    def settle(self) -> None:
        """Takes what was read, begins what can be read, and hands over what can be written."""
        while self._left and all(move.landed for move in self._left[0][0]):
            self._files.save(self._left.popleft()[1])
        for coming in list(self._coming):
            if coming.begun and coming.reading.landed:
                self._take(coming)
            else:
                self._begin(coming)

    def distrust(self) -> None:
        """A copy has failed: what was called for may be on its way or not."""
        self._distrusts = True
        for _, left in self._left:
            self._files.failed(FileFailure.Overtaken, pages=len(left.slots))
        self._left.clear()
        for coming in [one for one in self._coming if not one.begun]:
            self._end(coming, 0)

    def _found(self, namespace: Namespace, tokens: list[int], match: Match) -> _Coming | None:
        """Begins to bring what follows `match`, where that pays."""
        tree, files = self._tree, self._files
        tree.add_slots(self._host.copies.slots - tree.slots)
        first, size = match.pages + match.host, tree.page_size
        most = min(len(tokens) // size - first, tree.slots // 2 - sum(len(one.reading.slots) for one in self._coming))
        if not self._pays(most) or not (keys := files.known(namespace, tokens, first, most)):
            return None
        if not self._pays(len(keys)):
            files.was_too_slow()
            return None
        if self._distrusts:
            files.pool.drain()
            self._distrusts = False
        slots = tree.take_slots(len(keys), tokens, namespace)
        if not slots:
            return None
        files.reused(slots)
        now, worth = files.clock(), len(slots) * size * self._host.costs.token
        reading = Reading(keys[: len(slots)], slots, now)
        coming = _Coming(namespace, tokens, first, reading, self._host.filling(slots), now + worth)
        self._coming.append(coming)
        self._begin(coming)
        return coming

    def _begin(self, coming: _Coming) -> None:
        if not coming.begun and all(move.landed for move in coming.behind):
            coming.begun = True
            self._files.fetch(coming.reading)

    def _pays(self, pages: int) -> bool:
        costs, size = self._host.costs, self._tree.page_size
        each = costs.page + self._files.page_seconds
        return pages > 0 and costs.load + pages * each < pages * size * costs.token

    def _take(self, coming: _Coming) -> None:
        """Its slots are the tree's, as far as the prefix in front of them is there still."""
        self._files.took(coming.reading)
        whole = coming.reading.whole
        if coming.until >= 0:
            self._files.wait_seconds += self._files.clock() - coming.reading.began
        self._end(coming, whole)

    def _end(self, coming: _Coming, whole: int) -> None:
        slots, tree = list(coming.reading.slots), self._tree
        unused = slots
        if whole:
            end = (coming.first + whole) * tree.page_size
            unused = slots[whole:] + tree.adopt(slots[:whole], coming.tokens[:end], coming.namespace)
        tree.release(unused)
        coming.pages, coming.over = len(slots) - len(unused), True
        self._coming.remove(coming)
