"""What somebody else may write into a field: any value of JSON, and every place in a document where it may stand."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import strategies as st

Path = tuple[str | int, ...]
DEEP = "[" * 100_000
"""What ends a reader that recurses for each level."""
LONG = "9" * 5000
"""A whole number of more digits than Python reads."""
LONGEST_MESSAGE = 1000

CORNERS: tuple[Any, ...] = (
    None, True, 0, -1, 1 << 63, 10**400, 0.5, -0.0, 1e300, float("inf"), float("-inf"), float("nan"),
    "", "\x00", "\x1b[2J", "\ud800", "²", "../..", "x" * 5000, [], [[]], {}, {"": None},
)  # fmt: skip
"""Values of which each has ended a reader before."""

ANYTHING = st.recursive(
    st.sampled_from(CORNERS) | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def paths(value: Any, at: Path = ()) -> Iterator[Path]:
    """Every place in a document."""
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield from paths(child, (*at, key))


def put(document: Any, at: Path, value: Any) -> Any:
    """The same document with another value in one place."""
    if not at:
        return value
    head, *rest = at
    if isinstance(document, dict):
        return {**document, head: put(document[head], tuple(rest), value)}
    return [put(item, tuple(rest), value) if number == head else item for number, item in enumerate(document)]


def scribbled(*documents: Any) -> st.SearchStrategy[Any]:
    """One of the documents with anything in one place."""
    places = [(document, at) for document in documents for at in sorted(paths(document), key=str)]
    return st.builds(lambda place, value: put(*place, value), st.sampled_from(places), ANYTHING)


@contextmanager
def read_or(*errors: type[Exception]) -> Iterator[None]:
    """What reads somebody's text in this block does so, or ends by one of `errors`, whose message fits into a log."""
    try:
        yield
        return
    except errors as error:
        message = str(error)
    message.encode()
    assert len(message) < LONGEST_MESSAGE, message
