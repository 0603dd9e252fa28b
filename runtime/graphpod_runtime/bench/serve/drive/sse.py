"""Server-sent events, as an OpenAI stream has them: bytes in any pieces to the data of whole events."""

from collections.abc import Iterator

DONE = b"[DONE]"
_PREFIX = b"data:"


class Events:
    """Cuts a stream. Comments and other fields are dropped; both kinds of line ends are read."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The data of every event line that is complete now. Each event of an OpenAI stream is one line."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if line.startswith(_PREFIX):
                yield line[len(_PREFIX) :].strip()
