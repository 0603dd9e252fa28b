"""What an engine is put through: schedules that every policy runs alike. The columns of the matrix."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from graphpod_policy import Phase, SpeculativeMethod
from graphpod_runtime.engine.capture.debug import FaultKind
from graphpod_runtime.engine.schedule.sampling import Sampling
from graphpod_runtime.engine.schedule.sequence import LogprobRequest
from graphpod_runtime.wire.logit_processing import LogitProcessing
from graphpod_runtime.wire.messages import Pooling
from truth.engines import TREE, Tree
from truth.models import VOCAB
from truth.schedule.grammars import matchers
from truth.schedule.recorded_schedule import RIVALS, Driven, RecordedSchedule
from truth.schedule.requests import (
    chunk_tail,
    embeddings,
    hit_after_eviction,
    hit_after_restart,
    one_to_many,
    preempted,
    prefix_hit,
    several,
)

ALTERNATIVES = 3
TEMPERATURE = 0.8
PROCESSED = LogitProcessing(
    bias=dict.fromkeys(range(3, 40), 2.0) | {5: -100.0},
    frequency=1.5,
    presence=0.5,
    bad_words=[[7], [8, 9], [10, 11, 12]],
)
"""Few tokens are likely, and repeat: what counts them decides most choices."""


class Name(StrEnum):
    """The scenarios."""

    Plain = "plain"
    PrefixHit = "prefix hit"
    ChunkTail = "chunk tail"
    Requests = "1–32 requests"
    Sampled = "sampled"
    Processed = "bias, penalties"
    Grammars = "grammars"
    Embeddings = "embeddings"
    Drafts = "drafts"
    DraftsPrefixHit = "drafts: prefix hit"
    DraftsChunkTail = "drafts: chunk tail"
    DraftsRequests = "drafts: 1–32 requests"
    DraftsSampled = "drafts: sampled"
    DraftsProcessed = "drafts: bias, penalties"
    DraftsGrammars = "drafts: grammars"
    DraftsLogprobs = "drafts: output logprobs"
    DraftsPreempted = "drafts: preempted"
    DraftModel = "draft model"
    DraftModelPrefixHit = "draft model: prefix hit"
    DraftModelChunkTail = "draft model: chunk tail"
    DraftModelRequests = "draft model: 1–32 requests"
    DraftModelSampled = "draft model: sampled"
    DraftModelLogprobs = "draft model: output logprobs"
    DraftModelPreempted = "draft model: preempted"
    Eagle = "eagle"
    EaglePrefixHit = "eagle: prefix hit"
    EagleChunkTail = "eagle: chunk tail"
    EagleRequests = "eagle: 1–32 requests"
    EagleSampled = "eagle: sampled"
    EagleLogprobs = "eagle: output logprobs"
    EaglePreempted = "eagle: preempted"
    DraftModelHostTier = "draft model: host tier"
    Eagle3 = "eagle-3"
    Eagle3PrefixHit = "eagle-3: prefix hit"
    Eagle3ChunkTail = "eagle-3: chunk tail"
    Eagle3Requests = "eagle-3: 1–32 requests"
    Eagle3Sampled = "eagle-3: sampled"
    Eagle3Logprobs = "eagle-3: output logprobs"
    Eagle3Preempted = "eagle-3: preempted"
    Mtp = "mtp"
    MtpPrefixHit = "mtp: prefix hit"
    MtpChunkTail = "mtp: chunk tail"
    MtpRequests = "mtp: 1–32 requests"
    MtpSampled = "mtp: sampled"
    MtpLogprobs = "mtp: output logprobs"
    MtpPreempted = "mtp: preempted"
    EagleTrees = "eagle trees"
    EagleTreesPrefixHit = "eagle trees: prefix hit"
    EagleTreesSampled = "eagle trees: sampled"
    EagleTreesPreempted = "eagle trees: preempted"
    Eagle3Trees = "eagle-3 trees"
    Eagle3TreesPrefixHit = "eagle-3 trees: prefix hit"
    Eagle3TreesSampled = "eagle-3 trees: sampled"
    Eagle3TreesPreempted = "eagle-3 trees: preempted"
    MtpTrees = "mtp trees"
    MtpTreesPrefixHit = "mtp trees: prefix hit"
    MtpTreesSampled = "mtp trees: sampled"
    MtpTreesPreempted = "mtp trees: preempted"
    HostTier = "host tier: hit after eviction"
    HostTierSampled = "host tier: sampled"
    Files = "files: hit after a restart"
    FilesSampled = "files: sampled"
    OutputLogprobs = "output logprobs"
    InputLogprobs = "input logprobs"
    CaptureFault = "fault: capture"
    MemoryFault = "fault: memory"
    CheckFault = "fault: self-check"


class Scenario(NamedTuple):
    """One column. `fault` is met by the start of an engine of its own, in every phase that captures; it leads to one of
    the rules `degraded_by`.
    """

    name: Name
    run: Callable[[RecordedSchedule], None]
    wants: LogprobRequest = LogprobRequest()
    sampling: Sampling = Sampling()
    constrained: bool = False
    """Some requests have grammars."""
    poolings: tuple[Pooling | None, ...] = (None,)
    """Of requests in turn."""
    drafts: bool = False
    """By an engine with speculative decoding, most of whose drafts are right. Eager, which has none, is the record."""
    method: SpeculativeMethod = SpeculativeMethod.Ngram
    """Of the drafts. Those of a DraftModel are of a model that is nearly the subject. A head drafts, and what it drafts
    is replaced as that of Ngram is."""
    tree: Tree | None = None
    """The form of drafts that are no chain."""
    host_tier: bool = False
    """By an engine with a host tier, which must load. Eager, which has none and computes, is the record."""
    files: bool = False
    """With files under the host tier, which another engine on their folder has written."""
    fault: FaultKind | None = None
    degraded_by: frozenset[str] = frozenset()
    fault_of: int | None = None
    """The rank whose alone the fault is; None: of all."""
    like: Name | None = None
    """With a drawn fault: the scenario whose requests are served."""

    @property
    def met(self) -> str:
        """The words of a drawn fault."""
        return (self.like and f"{'all ranks' if self.fault_of is None else f'rank {self.fault_of}'}; {self.like}") or ""

    @property
    def drafting(self) -> SpeculativeMethod | None:
        """How it drafts."""
        return self.method if self.drafts else None

    @property
    def own_passes(self) -> bool:
        """Whether its passes are not those of the record, so that texts are compared."""
        return self.drafts or self.host_tier

    @property
    def over_ranks(self) -> bool:
        """Whether it has a place in a matrix over ranks: look-ups would need texts at every rank, and a draft model or
        the layers of MTP a checkpoint."""
        return not self.drafts or self.method in (SpeculativeMethod.Eagle, SpeculativeMethod.Eagle3)

    @property
    def rivals(self) -> int:
        """How many tokens a record names for each that was chosen. Noise may bring any to the front, and a mask too."""
        plain = self.sampling.greedy and not self.sampling.processing.changes and not self.constrained
        return RIVALS if plain else VOCAB

    @property
    def reads_all_rows(self) -> bool:
        """Whether more rows of prompts count than the last."""
        return self.wants.prompt is not None or Pooling.Mean in self.poolings

    def recorded(
        self, runner: Driven, wants: LogprobRequest, given: RecordedSchedule | None = None, stages: int = 1
    ) -> RecordedSchedule:
        """An empty record of requests that want that."""
        grammars = matchers() if self.constrained else (None,)
        return RecordedSchedule(runner, wants, self.sampling, grammars, self.poolings, given, stages)


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(Name.Plain, several),
    Scenario(Name.PrefixHit, prefix_hit),
    Scenario(Name.ChunkTail, chunk_tail),
    Scenario(Name.Requests, one_to_many),
    Scenario(Name.Sampled, several, sampling=Sampling(TEMPERATURE)),
    Scenario(Name.Processed, prefix_hit, sampling=Sampling(TEMPERATURE, processing=PROCESSED)),
    Scenario(Name.Grammars, prefix_hit, sampling=Sampling(TEMPERATURE), constrained=True),
    Scenario(Name.Embeddings, embeddings, poolings=(Pooling.Last, Pooling.Mean, None)),
    Scenario(Name.OutputLogprobs, several, LogprobRequest(answer=ALTERNATIVES)),
    Scenario(Name.InputLogprobs, several, LogprobRequest(prompt=ALTERNATIVES)),
    Scenario(Name.Drafts, several, drafts=True),
    Scenario(Name.DraftsPrefixHit, prefix_hit, drafts=True),
    Scenario(Name.DraftsChunkTail, chunk_tail, drafts=True),
    Scenario(Name.DraftsRequests, one_to_many, drafts=True),
    Scenario(Name.DraftsSampled, several, sampling=Sampling(TEMPERATURE), drafts=True),
    Scenario(Name.DraftsProcessed, prefix_hit, sampling=Sampling(TEMPERATURE, processing=PROCESSED), drafts=True),
    Scenario(Name.DraftsGrammars, prefix_hit, sampling=Sampling(TEMPERATURE), constrained=True, drafts=True),
    Scenario(Name.DraftsLogprobs, several, LogprobRequest(answer=ALTERNATIVES), drafts=True),
    Scenario(Name.DraftsPreempted, preempted, drafts=True),
    Scenario(Name.HostTier, hit_after_eviction, host_tier=True),
    Scenario(Name.HostTierSampled, hit_after_eviction, sampling=Sampling(TEMPERATURE), host_tier=True),
    Scenario(Name.CaptureFault, several, fault=FaultKind.Capture, degraded_by=frozenset({"CaptureFailed"})),
    Scenario(
        Name.MemoryFault,
        several,
        fault=FaultKind.CaptureOom,
        degraded_by=frozenset({"LadderMemory", "CaptureOutOfMemory"}),
    ),
    Scenario(Name.CheckFault, several, fault=FaultKind.SelfCheck, degraded_by=frozenset({"SelfCheckFailed"})),
)


def _drafted(method: SpeculativeMethod, *names: Name) -> tuple[Scenario, ...]:
    """What happens to drafts of `method`, as `names`."""
    drawn, scored = Sampling(TEMPERATURE), LogprobRequest(answer=ALTERNATIVES)
    return tuple(
        Scenario(name, run, wants, sampling, drafts=True, method=method)
        for name, (run, wants, sampling) in zip(
            names,
            (
                (several, LogprobRequest(), Sampling()),
                (prefix_hit, LogprobRequest(), Sampling()),
                (chunk_tail, LogprobRequest(), Sampling()),
                (one_to_many, LogprobRequest(), Sampling()),
                (several, LogprobRequest(), drawn),
                (several, scored, Sampling()),
                (preempted, LogprobRequest(), Sampling()),
            ),
            strict=True,
        )
    )


DRAFT_MODEL: tuple[Scenario, ...] = (
    *_drafted(
        SpeculativeMethod.DraftModel,
        Name.DraftModel,
        Name.DraftModelPrefixHit,
        Name.DraftModelChunkTail,
        Name.DraftModelRequests,
        Name.DraftModelSampled,
        Name.DraftModelLogprobs,
        Name.DraftModelPreempted,
    ),
    Scenario(
        Name.DraftModelHostTier,
        hit_after_eviction,
        drafts=True,
        method=SpeculativeMethod.DraftModel,
        host_tier=True,
    ),
)
"""Not among SCENARIOS until a whole run of both devices has them; `--scenario "draft model"` runs them."""
EAGLE: tuple[Scenario, ...] = _drafted(
    SpeculativeMethod.Eagle,
    Name.Eagle,
    Name.EaglePrefixHit,
    Name.EagleChunkTail,
    Name.EagleRequests,
    Name.EagleSampled,
    Name.EagleLogprobs,
    Name.EaglePreempted,
)
"""As DRAFT_MODEL: `--scenario eagle`."""
EAGLE3: tuple[Scenario, ...] = _drafted(
    SpeculativeMethod.Eagle3,
    Name.Eagle3,
    Name.Eagle3PrefixHit,
    Name.Eagle3ChunkTail,
    Name.Eagle3Requests,
    Name.Eagle3Sampled,
    Name.Eagle3Logprobs,
    Name.Eagle3Preempted,
)
"""As DRAFT_MODEL: `--scenario eagle-3`."""
MTP: tuple[Scenario, ...] = _drafted(
    SpeculativeMethod.Mtp,
    Name.Mtp,
    Name.MtpPrefixHit,
    Name.MtpChunkTail,
    Name.MtpRequests,
    Name.MtpSampled,
    Name.MtpLogprobs,
    Name.MtpPreempted,
)
"""As DRAFT_MODEL: `--scenario mtp`. Subjects without such layers are refused."""

TREES: tuple[Scenario, ...] = tuple(
    Scenario(name, run, sampling=sampling, drafts=True, method=method, tree=TREE)
    for method, names in (
        (
            SpeculativeMethod.Eagle,
            (Name.EagleTrees, Name.EagleTreesPrefixHit, Name.EagleTreesSampled, Name.EagleTreesPreempted),
        ),
        (
            SpeculativeMethod.Eagle3,
            (Name.Eagle3Trees, Name.Eagle3TreesPrefixHit, Name.Eagle3TreesSampled, Name.Eagle3TreesPreempted),
        ),
        (
            SpeculativeMethod.Mtp,
            (Name.MtpTrees, Name.MtpTreesPrefixHit, Name.MtpTreesSampled, Name.MtpTreesPreempted),
        ),
    )
    for name, (run, sampling) in zip(
        names,
        (
            (several, Sampling()),
            (prefix_hit, Sampling()),
            (several, Sampling(TEMPERATURE)),
            (preempted, Sampling()),
        ),
        strict=True,
    )
)
"""As DRAFT_MODEL: `--scenario trees`."""
FILES: tuple[Scenario, ...] = (
    Scenario(Name.Files, hit_after_restart, host_tier=True, files=True),
    Scenario(Name.FilesSampled, hit_after_restart, sampling=Sampling(TEMPERATURE), host_tier=True, files=True),
)
"""As DRAFT_MODEL: `--scenario files`. Over ranks they are refused."""
ASIDE = {"draft model": DRAFT_MODEL, "eagle": EAGLE, "eagle-3": EAGLE3, "mtp": MTP, "trees": TREES, "files": FILES}
"""Those that are not among SCENARIOS, by the word that asks for them."""

FAULTY_SIZE = {Phase.Prefill: 16, Phase.Decode: 4}
"""The size whose capture or check fails: not the first one."""
