"""Pages of the KV cache, handed out and taken back."""

SCRATCH_PAGE = 0
"""Padded rows and captures write here. It has no owner and no reader."""


class OutOfPages(Exception):
    """Fewer pages are free than were asked for; nothing was taken."""


class PageAllocator:
    """A free list over `pages` pages, of which page 0 is scratch and never handed out."""

    def __init__(self, pages: int) -> None:
        self.capacity = pages - 1
        self._free = list(range(pages - 1, SCRATCH_PAGE, -1))
        self._taken: set[int] = set()
        self.unclean: set[int] = set()
        """Pages to zero before their next owner writes to them: they may hold NaN."""
        self.drafted: set[int] = set()
        """Pages all of whose tokens a draft model has read, too. A page that is taken is none."""
        self.unclean_drafts: set[int] = set()
        """Pages of `unclean` that a copy has written: what a draft model has under them may hold NaN."""

    @property
    def available(self) -> int:
        """Pages that can be taken now."""
        return len(self._free)

    @property
    def free_pages(self) -> list[int]:
        """The pages without an owner, ascending, the scratch page left out."""
        return sorted(self._free)

    def take(self, count: int) -> list[int]:
        """`count` pages; OutOfPages takes none."""
        if count > len(self._free):
            raise OutOfPages(f"{count} KV pages wanted, {len(self._free)} of {self.capacity} free")
        pages = [self._free.pop() for _ in range(count)]
        self._taken.update(pages)
        self.drafted.difference_update(pages)
        return pages

    def free(self, pages: list[int], *, clean: bool = True) -> None:
        """Gives `pages` back; ValueError for a page that is not taken (a double free would alias two sequences). What
        is not `clean` may hold NaN.
        """
        for page in pages:
            if page not in self._taken:
                raise ValueError(f"page {page} is not taken: freed twice, or never handed out")
            self._taken.remove(page)
            self._free.append(page)
        if not clean:
            self.unclean.update(pages)

    def overwritten(self, pages: list[int]) -> None:
        """Taken `pages` need no zeroing: all of each is written by a copy, but for what a draft model has there."""
        self.unclean_drafts.update(self.unclean.intersection(pages))
        self.unclean.difference_update(pages)

    def take_unclean(self) -> list[int]:
        """The pages to zero now, ascending; whoever asks zeroes them."""
        pages, self.unclean = sorted(self.unclean), set()
        return pages
