"""The reasons of ModelAvailable while weights are downloaded: those of a failure begin with Download, and end with the
word of the program that downloads.
"""

from __future__ import annotations

from graphpod_operator.api.status import ConditionStatus
from graphpod_operator.conditions.reason_row import ReasonRow, stalls, warns
from graphpod_operator.conditions.types import ConditionType

_M = (ConditionType.ModelAvailable,)
_F = ConditionStatus.false
_ENDS = "a download of the weights ends well"
_AGAIN = "then: kubectl -n NAMESPACE delete job JOB"
"""Whoever deletes a Job that failed has it created again."""

# fmt: off
ROWS = {
    "Downloading": ReasonRow(
        _M, _F, "a Job downloads the weights; pods are created once they are complete", "the weights are complete",
        consequence=True,
    ),
    "CacheClaimNotFound": stalls(
        _M, _F, "the claim in spec.model.cache.claim does not exist, or is being deleted", "the claim exists",
        "create the PersistentVolumeClaim, or correct spec.model.cache",
    ),
    "DownloadPending": warns(
        _M, _F, "the Job that downloads the weights cannot begin: no node, no image, no Secret, another Job on "
        "its claim",
        "its pod runs",
        "for the cause: kubectl -n NAMESPACE describe job,pod -l graphpod.dev/weights", own_step=True,
    ),
    "DownloadFailed": stalls(
        _M, _F, "the Job that downloads the weights failed, and its pod gave no reason", _ENDS,
        "read kubectl -n NAMESPACE logs job/JOB, then delete that Job",
    ),
    "DownloadNotFound": stalls(
        _M, _F, "the source has no such repository, revision, bucket or file (404)", _ENDS,
        f"correct spec.model.uri; if it has appeared since, {_AGAIN}",
    ),
    "DownloadUnauthorized": stalls(
        _M, _F, "the source refuses the credentials, or requires some (401, 403)", _ENDS,
        f"name a Secret with credentials in spec.model.secretRef, or correct it and {_AGAIN}",
    ),
    "DownloadGated": stalls(
        _M, _F, "the hub gives this model only to accounts that accepted its terms", _ENDS,
        f"accept the terms on the hub with the account of spec.model.secretRef, {_AGAIN}",
    ),
    "DownloadRateLimited": stalls(
        _M, _F, "the source answered 429 for longer than the Job waits", _ENDS,
        f"wait, or name a Secret with a token in spec.model.secretRef; {_AGAIN}",
    ),
    "DownloadTruncated": stalls(
        _M, _F, "files ended before their length at each attempt", _ENDS,
        f"check the proxy or mirror on the way, {_AGAIN}",
    ),
    "DownloadChecksumMismatch": stalls(
        _M, _F, "a file is not the one that its checksum names", _ENDS,
        f"correct spec.model.sha256, or check the mirror and {_AGAIN}",
    ),
    "DownloadChangedUnderUs": stalls(
        _M, _F, "a file changed at the source while it was downloaded", _ENDS,
        f"name a revision that does not move in spec.model.uri, or {_AGAIN}",
    ),
    "DownloadNoRanges": stalls(
        _M, _F, "the source, or a proxy on the way, ignores range requests and answers with whole files", _ENDS,
        f"name a server or mirror that answers range requests with 206, {_AGAIN}",
    ),
    "DownloadDiskFull": stalls(
        _M, _F, "the weights do not fit on the claim next to those in use", _ENDS,
        f"raise spec.model.cache.size or free space on the claim, {_AGAIN}",
    ),
    "DownloadStalled": stalls(
        _M, _F, "no byte arrived for the stall limit at each attempt", _ENDS,
        f"check the network between the Job's pod and the source, {_AGAIN}",
    ),
    "DownloadNoWeights": stalls(
        _M, _F, "the source has no weights in a format that the engine reads", _ENDS,
        "name a repository or folder with safetensors or GGUF files in spec.model.uri",
    ),
    "DownloadPickledWeights": stalls(
        _M, _F, "the source has only pickled weights (.bin, .pt), which can run code", _ENDS,
        "name a repository with safetensors files in spec.model.uri, or convert the weights first",
    ),
    "DownloadCodeInRepository": stalls(
        _M, _F, "the model needs code of its repository (auto_map), which the engine does not run", _ENDS,
        "name a model in spec.model.uri that needs no code of its own",
    ),
    "DownloadBadArchive": stalls(
        _M, _F, "the archive or image cannot be unpacked, or names files outside its folder", _ENDS,
        "correct the archive that spec.model.uri names",
    ),
    "DownloadBadUri": stalls(
        _M, _F, "the program that downloads cannot read spec.model.uri", _ENDS, "correct spec.model.uri",
    ),
    "DownloadUnreachable": stalls(
        _M, _F, "the source could not be reached at any attempt", _ENDS,
        f"check its name, DNS, proxies and network policies, {_AGAIN}",
    ),
    "DownloadSecretNotForHost": stalls(
        _M, _F, "the Secret does not say that it may be sent to the host of the source", _ENDS,
        f"let its owner add the host to its key hosts, {_AGAIN}",
    ),
    "DownloadHostNotAllowed": stalls(
        _M, _F, "the source, or a redirect of it, is at a host that allowed.sourceHosts of the chart has not, "
        "or a bucket's endpoint redirects to another host", _ENDS,
        f"ask the operator's installer to add the host to allowed.sourceHosts, or name it as the endpoint, {_AGAIN}",
    ),
    "DownloadServerError": stalls(
        _M, _F, "the source answered with errors (5xx) at each attempt", _ENDS,
        f"wait until the source works again, {_AGAIN}",
    ),
}
