"""Which folders leave the cache so that a model fits: the least recently used ones first. Pure."""

from collections.abc import Collection, Sequence

from graphpod_sources.cache.contents import Kept
from graphpod_sources.names import size
from graphpod_sources.problem import Problem, Reason


def leaving(
    kept: Sequence[Kept], *, name: str, keep: Collection[str], needed: int, limit: int | None, free: int, cache: str
) -> list[Kept]:
    """Folders to remove, in order, before `needed` more bytes are written.

    `limit`: bytes that the cache may hold; without one nothing is removed. `free`: bytes free on its disk. Never: the
    folder `name` itself, those of `keep`, those that are not ours. Raises `Problem` (DiskFull) when all the others
    are not enough.
    """
    held = sum(folder.bytes for folder in kept)
    over = max(needed - free, held + needed - limit if limit is not None else 0)
    if over <= 0:
        return []
    usable = [folder for folder in kept if folder.ours and folder.name not in keep and folder.name != name]
    gone: list[Kept] = []
    for folder in sorted(usable, key=lambda folder: (folder.used, folder.name)) if limit is not None else ():
        if over <= 0:
            break
        gone.append(folder)
        over -= folder.bytes
    if over > 0:
        allowed = f"may hold {size(limit)} and " if limit is not None else ""
        removable = f"; {size(sum(folder.bytes for folder in gone))} could be evicted" if gone else ""
        raise Problem(
            Reason.DiskFull,
            f"{cache}: the model needs {size(needed)} more, the cache {allowed}has {size(free)} free and holds "
            f"{size(held)}{removable}: {size(over)} are lacking",
        )
    return gone
