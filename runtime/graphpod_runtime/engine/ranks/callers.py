"""Connections to the leader's machine whose other end has not joined yet: strangers may hold them, and not for long.

Their number is bounded, of each address and of all. A new one ends the oldest: a worker says at once who it is, so it
has long joined when as many others have come, and one that was ended comes again.
"""

import socket
import threading
from contextlib import suppress

MOST_CALLERS = 128
MOST_OF_ADDRESS = 16
"""Machines behind one address are distinguished only once they have said who they are."""


class Callers:
    """All that are open, the oldest first. Any thread may call its methods."""

    def __init__(self) -> None:
        self._addresses: dict[socket.socket, str] = {}
        self._lock = threading.Lock()

    def comes(self, connection: socket.socket, address: str) -> None:
        """Ends the oldest of this address or of all, where there are too many."""
        with self._lock:
            self._addresses[connection] = address
            alike = [one for one, other in self._addresses.items() if other == address]
            if len(alike) > MOST_OF_ADDRESS:
                self._end(alike[0])
            elif len(self._addresses) > MOST_CALLERS:
                self._end(next(iter(self._addresses)))

    def goes(self, connection: socket.socket) -> bool:
        """It has said who it is, or has ended. False where it was ended for a newer one."""
        with self._lock:
            return self._addresses.pop(connection, None) is not None

    def _end(self, connection: socket.socket) -> None:
        """Its thread hears the end, and closes it."""
        del self._addresses[connection]
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
