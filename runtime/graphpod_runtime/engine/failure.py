"""How a start ends badly."""

from graphpod_policy import ExitCode


class StartFailure(Exception):
    """The engine cannot become Ready. `message` says what, where and what to do."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.reason = code.name
        self.message = message
