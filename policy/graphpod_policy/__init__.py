"""graphpod's rules: from the features of a service to the graph policy it runs. Standard library only.

Operator, engine and command line share this package, so what is planned and what is explained cannot drift.
"""

from graphpod_policy.config import (
    ConfigError,
    EngineConfig,
    FeatureConfig,
    GraphConfig,
    ModelConfig,
    ServingConfig,
    config_hash,
)
from graphpod_policy.exits import ExitCode
from graphpod_policy.features import BUILT_POLICIES, FEATURES, Features, GraphRequest, NotBuilt, not_built
from graphpod_policy.plan import Budget, Decision, PhasePlan, Plan
from graphpod_policy.resolve import RESOLVER_REVISION, Facts, refine, resolve, shorten, weaken
from graphpod_policy.rules import RULES, Rule
from graphpod_policy.words import (
    AllToAll,
    AttentionBackend,
    Backend,
    CompileMode,
    Device,
    FallbackReason,
    KvCacheDtype,
    OnCaptureFailure,
    OnUnsupported,
    Outcome,
    Phase,
    Policy,
    Quantization,
    Role,
    Severity,
    SpeculativeMethod,
    Stage,
)

__version__ = "0.1.0"

__all__ = [
    "BUILT_POLICIES",
    "FEATURES",
    "RESOLVER_REVISION",
    "RULES",
    "AllToAll",
    "AttentionBackend",
    "Backend",
    "Budget",
    "CompileMode",
    "ConfigError",
    "Decision",
    "Device",
    "EngineConfig",
    "ExitCode",
    "Facts",
    "FallbackReason",
    "FeatureConfig",
    "Features",
    "GraphConfig",
    "GraphRequest",
    "KvCacheDtype",
    "ModelConfig",
    "NotBuilt",
    "OnCaptureFailure",
    "OnUnsupported",
    "Outcome",
    "Phase",
    "PhasePlan",
    "Plan",
    "Policy",
    "Quantization",
    "Role",
    "Rule",
    "ServingConfig",
    "Severity",
    "SpeculativeMethod",
    "Stage",
    "config_hash",
    "not_built",
    "refine",
    "resolve",
    "shorten",
    "weaken",
]
