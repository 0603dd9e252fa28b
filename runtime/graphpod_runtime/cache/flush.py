"""What an engine that ends leaves in files: pages of the prefix cache that have none.

A prefix is read from its first page on, so a page is of use only with those in front of it. Nodes go in the order of
their latest use, each behind those above it, until the time is over or the folder holds nothing else. Pages of the
device go through slots of the host pool, which gives those of the prefixes that were used longest ago. A pool with
fewer slots than a move or a node has pages takes them in turns.
"""

import logging
import time
from collections.abc import Callable, Iterator

from graphpod_runtime.cache.files.file_tier import APART, NO_SLOT, FileTier, Left
from graphpod_runtime.cache.files.page_file import file_bytes
from graphpod_runtime.cache.host_tier import HostTier
from graphpod_runtime.cache.radix import RadixTree
from graphpod_runtime.cache.radix_node import Node

logger = logging.getLogger("graphpod.engine")

POLL_SECONDS = 0.001


class Flush:
    """Of one KV space without sequences, whose tree serves nothing afterwards."""

    def __init__(
        self,
        host: HostTier,
        files: FileTier,
        tree: RadixTree,
        until: float,
        beat: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`until`: by `clock`. `beat` is called while the disk is waited for."""
        self._host, self._files, self._tree = host, files, tree
        self._until, self._beat, self._clock = until, beat, clock
        self._room = files.folder.size // file_bytes(files.pool.page_bytes)
        """Pages that can be in files and push out none of those before them."""
        self._used = time.time()
        """Of the next page, as its file says it: the next process knows by that which were used last."""

    def run(self) -> bool:
        """Whether all that is worth a file has one."""
        began, before = self._clock(), self._files.written
        done = self._waits(self._idle) and all(self._node(one) for one in self._by_use())
        logger.info(
            "host KV cache, files: %d pages written before the end in %.1f s%s",
            self._files.written - before,
            self._clock() - began,
            "" if done else ", and some are lost",
        )
        return done

    def _by_use(self) -> Iterator[Node]:
        """Nodes, those used last first and none before those above it. Host nodes that go meanwhile for the slots of
        others are left out: their slots hold other pages.
        """
        seen = set[Node]()
        nodes = [node for root in self._tree.roots.values() for node in root.subtree]
        for node in sorted(nodes, key=lambda one: -one.used):
            for one in reversed([*node.path]):
                if one.pages and not one.withdrawn and one not in seen:
                    seen.add(one)
                    yield one

    def _node(self, node: Node) -> bool:
        """Whether it could be handled. A node of the host gives its last pages for the slots of others now and then."""
        at, text, size = 0, node.text, self._tree.page_size
        while at < len(node.pages) and self._room > 0:
            first = node.end - len(node.pages) + at
            pages = node.pages[at : at + min(self._host.copies.at_once, self._room)]
            tokens = text[: (first + len(pages)) * size]
            without = self._files.without(node.namespace, tokens, first)
            lacking = [page for page, lacks in zip(pages, without, strict=True) if lacks]
            slots, taken = lacking, list[int]()
            if lacking and not node.host:
                slots = taken = self._tree.take_slots(len(lacking), tokens, node.namespace)
                if not taken or not self._stored(taken, lacking[: len(taken)]):
                    return False
                if len(taken) < len(lacking):
                    # The pool is smaller than a move: pages behind those that have a slot come next.
                    pages = pages[: pages.index(lacking[len(taken)])]
                    tokens = text[: (first + len(pages)) * size]
            slot_of = dict(zip(lacking, slots, strict=False))
            numbered = [
                (slot_of[page], self._files.number(slot_of[page])) if page in slot_of else NO_SLOT for page in pages
            ]
            self._files.save(Left(node.namespace, tokens, first, numbered, self._used))
            if not self._waits(self._idle):
                return False
            self._tree.release(taken)
            at, self._room, self._used = at + len(pages), self._room - len(pages), self._used - APART * len(pages)
        return True

    def _stored(self, slots: list[int], pages: list[int]) -> bool:
        """Whether `slots` have the bytes of `pages` now."""
        self._host.store(dict(zip(slots, pages, strict=True)))
        self._host.turn(everything=True)
        behind = self._host.filling(slots)
        return self._waits(lambda: all(move.landed for move in behind)) and self._host.settle()

    def _idle(self) -> bool:
        return not self._files.waiting_tokens

    def _waits(self, done: Callable[[], bool]) -> bool:
        """Whether it is `done` in time."""
        while not done():
            if self._clock() > self._until:
                return False
            self._beat()
            time.sleep(POLL_SECONDS)
        return self._clock() <= self._until
