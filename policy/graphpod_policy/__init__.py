"""graphpod's rules: from the features of a service to the graph policy it runs. Standard library only.

Operator, engine and command line share this package, so what is planned and what is explained cannot drift.
"""

from graphpod_policy import limits
from graphpod_policy.config import (
    STREAM_CREDENTIALS,
    STREAM_HOSTS,
    ConfigError,
    EngineConfig,
    FeatureConfig,
    GraphConfig,
    ModelConfig,
    ServingConfig,
    StreamConfig,
    config_hash,
)
from graphpod_policy.cost.cost import Budget, Cost
from graphpod_policy.engine_features import BUILT_COMPILE, BUILT_POLICIES, FEATURES, NotBuilt, not_built
from graphpod_policy.enums import (
    AllToAll,
    AttentionBackend,
    Backend,
    CompileMode,
    Device,
    Duty,
    FallbackReason,
    KvCacheDtype,
    ModelPath,
    OnCaptureFailure,
    OnUnsupported,
    Outcome,
    Phase,
    Policy,
    PrefixCache,
    Quantization,
    ReasoningParser,
    Role,
    SamplingSource,
    Severity,
    SpeculativeMethod,
    Stage,
    ToolParser,
)
from graphpod_policy.exit_codes import NEXT_STEP, ExitCode
from graphpod_policy.facts import Facts, ModelFacts, ModelUnreadable
from graphpod_policy.features import Features, GraphRequest
from graphpod_policy.node import GPUS, NOWHERE, Architecture, Kernels, NodeFacts
from graphpod_policy.plan import Decision, PhasePlan, Plan
from graphpod_policy.resolution.resolve import RESOLVER_REVISION, refine, resolve, shorten, uncompiled, weaken
from graphpod_policy.rules import POSSIBLE_FALLBACKS, RULES, Batch, Rule, refusing_gate
from graphpod_policy.start.can_start import attention_there, can_start, settled, start_facts
from graphpod_policy.start.obstacle import Obstacle

__version__ = "0.1.0"

__all__ = [
    "BUILT_COMPILE",
    "BUILT_POLICIES",
    "FEATURES",
    "GPUS",
    "NEXT_STEP",
    "NOWHERE",
    "POSSIBLE_FALLBACKS",
    "RESOLVER_REVISION",
    "RULES",
    "STREAM_CREDENTIALS",
    "STREAM_HOSTS",
    "AllToAll",
    "Architecture",
    "AttentionBackend",
    "Backend",
    "Batch",
    "Budget",
    "CompileMode",
    "ConfigError",
    "Cost",
    "Decision",
    "Device",
    "Duty",
    "EngineConfig",
    "ExitCode",
    "Facts",
    "FallbackReason",
    "FeatureConfig",
    "Features",
    "GraphConfig",
    "GraphRequest",
    "Kernels",
    "KvCacheDtype",
    "ModelConfig",
    "ModelFacts",
    "ModelPath",
    "ModelUnreadable",
    "NodeFacts",
    "NotBuilt",
    "Obstacle",
    "OnCaptureFailure",
    "OnUnsupported",
    "Outcome",
    "Phase",
    "PhasePlan",
    "Plan",
    "Policy",
    "PrefixCache",
    "Quantization",
    "ReasoningParser",
    "Role",
    "Rule",
    "SamplingSource",
    "ServingConfig",
    "Severity",
    "SpeculativeMethod",
    "Stage",
    "StreamConfig",
    "ToolParser",
    "attention_there",
    "can_start",
    "config_hash",
    "limits",
    "not_built",
    "refine",
    "refusing_gate",
    "resolve",
    "settled",
    "shorten",
    "start_facts",
    "uncompiled",
    "weaken",
]
