"""The reasons of conditions, by name: status, events, docs and tests read them; no other word is written.

`reason_table` says what each means. `Unknown` means that the operator could not check, `False` that it checked
and found otherwise. Ready takes over the reason that explains most: one that waiting does not fix, then one that is no
mere consequence of another.
"""

from __future__ import annotations

from enum import Enum, auto

from graphpod_operator.conditions.reason_row import ReasonRow
from graphpod_operator.conditions.reason_table import (
    accepted,
    downloads,
    event_only,
    graphs_captured,
    model_available,
    optional_kinds,
    ready,
    weights_place,
    workload_available,
)

TABLES = (
    *(accepted, model_available, downloads, workload_available, weights_place, graphs_captured, ready),
    *(optional_kinds, event_only),
)
_ROWS: dict[str, ReasonRow] = {name: row for table in TABLES for name, row in table.ROWS.items()}


class Reason(Enum):
    """Every reason, by condition."""

    # Accepted
    Accepted = auto()
    Paused = auto()
    SpecInvalid = auto()
    SpecTooLarge = auto()
    FeatureNotBuilt = auto()
    PolicyRefused = auto()
    NotAllowed = auto()
    PodTemplateInvalid = auto()
    NameCollision = auto()
    OwnerMissing = auto()
    ClaimOfOneNode = auto()
    CacheClaimImmutable = auto()
    KedaMissing = auto()
    LeaderWorkerSetMissing = auto()
    LeaderWorkerSetOutdated = auto()
    PrometheusUnknown = auto()
    ApplyRefused = auto()
    KueueRefused = auto()
    ObjectQuotaExceeded = auto()
    PreviousDeleting = auto()
    # every condition below Accepted
    NotAccepted = auto()
    # ModelAvailable
    Loaded = auto()
    Loading = auto()
    ModelPending = auto()
    ClaimNotFound = auto()
    ClaimNotBound = auto()
    ModelInvalid = auto()
    ModelUnsupported = auto()
    SourceFailed = auto()
    # ModelAvailable, while weights are downloaded
    Downloading = auto()
    CacheClaimNotFound = auto()
    DownloadPending = auto()
    DownloadFailed = auto()
    DownloadNotFound = auto()
    DownloadUnauthorized = auto()
    DownloadGated = auto()
    DownloadRateLimited = auto()
    DownloadTruncated = auto()
    DownloadChecksumMismatch = auto()
    DownloadChangedUnderUs = auto()
    DownloadNoRanges = auto()
    DownloadDiskFull = auto()
    DownloadStalled = auto()
    DownloadNoWeights = auto()
    DownloadPickledWeights = auto()
    DownloadCodeInRepository = auto()
    DownloadBadArchive = auto()
    DownloadBadUri = auto()
    DownloadUnreachable = auto()
    DownloadServerError = auto()
    DownloadSecretNotForHost = auto()
    DownloadHostNotAllowed = auto()
    # ModelAvailable, while weights are replaced in place
    Reloaded = auto()
    Reloading = auto()
    ReloadPending = auto()
    ReloadRefused = auto()
    # WorkloadAvailable
    Available = auto()
    Starting = auto()
    Suspended = auto()
    Sleeping = auto()
    FallingAsleep = auto()
    SleepPaused = auto()
    Waking = auto()
    WakeRefused = auto()
    PreviousDraining = auto()
    Unschedulable = auto()
    GroupUnschedulable = auto()
    QueuedByKueue = auto()
    SchedulingGated = auto()
    PodsRefused = auto()
    QuotaExceeded = auto()
    LimitRangeExceeded = auto()
    PodSecurityRefused = auto()
    AdmissionRefused = auto()
    PlacementRefused = auto()
    VolumeElsewhere = auto()
    ImagePullFailed = auto()
    ConfigInvalid = auto()
    ContextTooLong = auto()
    AttentionUnavailable = auto()
    DtypeUnavailable = auto()
    HostCacheInvalid = auto()
    KvCacheTooSmall = auto()
    KvCacheTooLarge = auto()
    WeightsTooLarge = auto()
    GpuMissing = auto()
    ParallelismInvalid = auto()
    SettingInvalid = auto()
    EngineRefused = auto()
    OutOfMemory = auto()
    EngineDied = auto()
    EngineStuck = auto()
    RankDied = auto()
    RankStuck = auto()
    ProbeFailed = auto()
    Restarting = auto()
    ContainerRefused = auto()
    ReferenceNotFound = auto()
    PodNotPrepared = auto()
    RolloutStuck = auto()
    CrashLoop = auto()
    # GraphsCaptured
    Captured = auto()
    Degraded = auto()
    NotRequired = auto()
    CapturePending = auto()
    Capturing = auto()
    SelfChecking = auto()
    PreviousServing = auto()
    EngineUnreachable = auto()
    EngineMisreports = auto()
    PolicyUnsupported = auto()
    CaptureFailed = auto()
    CaptureOutOfMemory = auto()
    StartDied = auto()
    CompileFailed = auto()
    SelfCheckFailed = auto()
    # Ready
    Ready = auto()
    # Scheduled
    Scheduled = auto()
    PodsPending = auto()
    # Available
    Serving = auto()
    NothingServes = auto()
    Unproved = auto()
    # Degraded
    StartsDied = auto()
    AsPlanned = auto()
    # PolicyUpdateAvailable, EngineUpdateAvailable
    UpToDate = auto()
    NewPolicy = auto()
    RulesRefuse = auto()
    NewEngine = auto()
    # Asleep
    Asleep = auto()
    SleepPending = auto()
    SleepRefused = auto()
    # conditions about optional kinds
    KindNotServed = auto()
    KindNotGranted = auto()
    KindNotListed = auto()
    NotWritten = auto()
    Scraped = auto()
    NotScraped = auto()
    ScrapePending = auto()
    ScrapeUnknown = auto()
    MonitorPending = auto()
    # RouteReady
    RouteAccepted = auto()
    RouteShut = auto()
    RoutePending = auto()
    RouteNotAllowed = auto()
    RouteHostnameUnmatched = auto()
    RouteListenerUnmatched = auto()
    RouteUnsupported = auto()
    RouteRefused = auto()
    # ScalingReady
    Autoscaled = auto()
    AutoscalerPending = auto()
    AutoscalerIdle = auto()
    AutoscalerHeld = auto()
    # an event alone
    Planned = auto()
    RolloutStarted = auto()
    PutBack = auto()
    Contested = auto()
    ChangedAtAdmission = auto()
    ReplicasIgnored = auto()
    AnnotationIgnored = auto()
    MemoryUnreadable = auto()
    ObjectSkipped = auto()
    # Reconciling
    Progressing = auto()

    @property
    def row(self) -> ReasonRow:
        """The row of the table."""
        return _ROWS[self.name]
