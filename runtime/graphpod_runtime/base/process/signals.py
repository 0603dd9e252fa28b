"""The signals that ask a process to end, for those that drain and for those that end with another process."""

import signal


def asks_to_end() -> tuple[signal.Signals, ...]:
    """Those that ask this process to end. SIGHUP is one, a terminal that closes, unless `nohup` has had it ignored."""
    hung_up = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return signal.SIGTERM, signal.SIGINT, *hung_up


def leave_ending_to_the_parent() -> None:
    """Ignores them. Ctrl-C and systemd signal all processes of a server, and requests that are open need this one until
    its parent has drained. It ends when its parent ends or lets it go.
    """
    for number in asks_to_end():
        signal.signal(number, signal.SIG_IGN)
