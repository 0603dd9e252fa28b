"""Files of a model's folder, opened only where they are files: whoever opens a named pipe waits for its writer, and a
device may have no end. Links are followed: Hugging Face's cache is made of them.
"""

import errno
import stat
from pathlib import Path
from typing import BinaryIO

KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFDIR: "a folder",
}
MOST_TEXT = 1 << 30
"""Bytes of a file that is read as a whole: the largest published tokenizer has some 50 MB."""


def check_regular(path: Path, most: int | None = None) -> None:
    """OSError where there is no file, something else than a file, or one of more than `most` bytes."""
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        kind = KINDS.get(stat.S_IFMT(state.st_mode), "no file")
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", str(path))
    if most is not None and state.st_size > most:
        raise OSError(errno.EFBIG, f"it has {state.st_size} bytes, more than {most}", str(path))


def open_regular(path: Path) -> BinaryIO:
    """The file, to be read. OSError as `check_regular`, and where it may not be read."""
    check_regular(path)
    return path.open("rb")


def read_regular(path: Path) -> bytes:
    """What the file holds. OSError as `open_regular`, and for more than MOST_TEXT bytes."""
    check_regular(path, MOST_TEXT)
    return path.read_bytes()


def read_if_there(path: Path) -> bytes | None:
    """As `read_regular`; None where nothing has this name. OSError for a link to a file that is not there."""
    try:
        return read_regular(path)
    except FileNotFoundError as error:
        if not path.is_symlink():
            return None
        raise OSError(errno.ENOENT, "it is a link to a file that is not there", str(path)) from error
