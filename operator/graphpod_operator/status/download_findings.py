"""What the condition ModelAvailable says of downloads, and how far they are, in words. Pure."""

from __future__ import annotations

from graphpod_operator.api.status import ModelStatus
from graphpod_operator.cache.fetch_report import FetchReport
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.observe.observed_state import Observed
from graphpod_operator.plan.downloads import PlannedDownload, Weights
from graphpod_operator.status.finding import Finding
from graphpod_policy.units import size

GIB = 2**30
MIB = 2**20


def find_download(weights: Weights, seen: Observed) -> Finding | None:
    """Why the weights are not there yet; None when they are."""
    if (missing := weights.missing) is None:
        return None
    if missing.reason is Reason.Downloading and (report := _report(missing, seen)) is not None:
        return Finding(missing.reason, f"{progress(report)}: {missing.what}")
    return Finding(missing.reason, missing.what)


def model_status(weights: Weights, seen: Observed) -> ModelStatus:
    """Where the weights of a service are, and how far their download is."""
    one = weights.missing or weights.downloads[0]
    report = _report(one, seen)
    stored = one.stored
    commit = stored.commit if stored is not None else report.commit if report is not None else None
    return ModelStatus(
        claim=weights.name,
        folder=one.download.folder,
        commit=commit or None,
        download=_state(one, report),
    )


def _state(one: PlannedDownload, report: FetchReport | None) -> str:
    if one.stored is not None:
        return f"complete, {size(one.stored.bytes)}" if one.stored.bytes else "complete"
    if one.reason is Reason.Downloading and report is not None:
        return progress(report)
    return one.reason.name


def _report(one: PlannedDownload, seen: Observed) -> FetchReport | None:
    return seen.progress.get(one.pod.uid) if one.pod is not None else None


def progress(report: FetchReport) -> str:
    """How far a download is, as people read it: `12.4 of 16.1 GiB, 410 MB/s, about 9 s left`."""
    if report.phase != "Downloading" or report.total_bytes is None:
        done = f", {size(report.done)} so far" if report.done else ""
        return f"{report.phase.lower()}{done}"
    parts = [_of(report.done, report.total_bytes), f"{report.bytes_per_second / 1e6:.0f} MB/s"]
    if report.seconds_left is not None:
        parts.append(f"about {_time(report.seconds_left)} left")
    return ", ".join(parts)


def _of(done: int, total: int) -> str:
    unit, name = (GIB, "GiB") if total >= GIB else (MIB, "MiB")
    return f"{done / unit:.1f} of {total / unit:.1f} {name}"


def _time(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
