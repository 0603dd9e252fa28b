"""How a start ends badly."""

from graphpod_policy import ExitCode, Obstacle


class StartFailure(Exception):
    """The engine cannot become Ready. `message` says what, where and what to do."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.reason = code.name
        self.message = message

    @classmethod
    def by(cls, *obstacles: Obstacle) -> "StartFailure":
        """The end by the first of `obstacles`; others of its kind are named, too."""
        first = obstacles[0]
        code = ExitCode[first.reason]
        alike = [one.what for one in obstacles if one.reason == first.reason]
        return cls(code, "; ".join([*alike, first.step] if first.step else alike))


class RankFailed(StartFailure):
    """A rank failed where it cannot vote: others may wait for it in a collective. What another one met first may be
    the cause."""
