"""Why a model cannot be fetched: a closed set of reasons, whether another try may help, and the next step of each."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Reason(StrEnum):
    """The word in the report and in the status of the service."""

    NotFound = "NotFound"
    Unauthorized = "Unauthorized"
    Gated = "Gated"
    RateLimited = "RateLimited"
    Truncated = "Truncated"
    ChecksumMismatch = "ChecksumMismatch"
    ChangedUnderUs = "ChangedUnderUs"
    NoRanges = "NoRanges"
    DiskFull = "DiskFull"
    Stalled = "Stalled"
    NoWeights = "NoWeights"
    PickledWeights = "PickledWeights"
    CodeInRepository = "CodeInRepository"
    BadArchive = "BadArchive"
    BadUri = "BadUri"
    Unreachable = "Unreachable"
    ServerError = "ServerError"
    SecretNotForHost = "SecretNotForHost"
    HostNotAllowed = "HostNotAllowed"


class Exit(IntEnum):
    """Exit codes, from sysexits.h: the Job's podFailurePolicy reads them."""

    Complete = 0
    Failed = 65
    """Another try would fail as well: EX_DATAERR."""
    TryAgain = 75
    """Another try may succeed: EX_TEMPFAIL."""


@dataclass(frozen=True, slots=True)
class Row:
    """What follows from a reason."""

    retry: bool
    next_step: str


ROWS: dict[Reason, Row] = {
    Reason.NotFound: Row(False, "check the name and the revision in spec.model.uri"),
    Reason.Unauthorized: Row(False, "put valid credentials into the Secret that spec.model.secretRef names"),
    Reason.Gated: Row(
        False, "accept the model's terms on its page, then put that account's token into spec.model.secretRef"
    ),
    Reason.RateLimited: Row(True, "wait; a token in spec.model.secretRef raises the limit"),
    Reason.Truncated: Row(True, "none: the download goes on where it ended"),
    Reason.ChecksumMismatch: Row(
        False, "compare spec.model.sha256 with what the publisher states; if it is right, upload the file again"
    ),
    Reason.ChangedUnderUs: Row(False, "wait until the upload is complete, then delete the Job to start again"),
    Reason.NoRanges: Row(
        False, "name a server or mirror that answers range requests with 206, or bypass the proxy that drops them"
    ),
    Reason.DiskFull: Row(False, "enlarge the claim or spec.model.cache.size, or remove models that no service uses"),
    Reason.Stalled: Row(True, "check the network between the cluster and the source"),
    Reason.NoWeights: Row(False, "name the folder of the model that has config.json and *.safetensors"),
    Reason.PickledWeights: Row(
        False, "convert the weights to safetensors, or use a repository or revision that has them"
    ),
    Reason.CodeInRepository: Row(False, "use a model that transformers knows without code of its own"),
    Reason.BadArchive: Row(False, "publish the model again, as regular files with relative names"),
    Reason.BadUri: Row(False, "correct spec.model.uri; docs/how-to/model-sources.md lists the forms"),
    Reason.Unreachable: Row(True, "check DNS, egress policies and proxy variables of the Job's namespace"),
    Reason.ServerError: Row(True, "none: tried again later; if it stays, ask who runs the source"),
    Reason.SecretNotForHost: Row(False, "whoever owns the Secret adds the host to its key hosts"),
    Reason.HostNotAllowed: Row(False, "ask the operator's installer to add the host to allowed.sourceHosts"),
}


class Problem(Exception):
    """The end of a fetch, or of one try of a request. `what` names the object and the value.

    `retry_after`: seconds that the source asks to wait. `next_step` replaces the one of the table.
    """

    def __init__(
        self, reason: Reason, what: str, *, next_step: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(what)
        self.reason, self.what, self.retry_after = reason, what, retry_after
        self.next_step = next_step or ROWS[reason].next_step

    @property
    def retry(self) -> bool:
        """Whether another try may succeed."""
        return ROWS[self.reason].retry

    @property
    def exit(self) -> Exit:
        return Exit.TryAgain if self.retry else Exit.Failed

    @property
    def message(self) -> str:
        """What, where and the next step, in one line."""
        return f"{self.what}. Next step: {self.next_step}."
