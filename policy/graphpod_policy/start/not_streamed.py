"""What goes with no streamed weights: all that reads them again, or reads other weights."""

from collections.abc import Iterator

from graphpod_policy.config import EngineConfig
from graphpod_policy.enums import ModelPath, SpeculativeMethod
from graphpod_policy.exit_codes import ExitCode
from graphpod_policy.facts import ModelFacts
from graphpod_policy.start.obstacle import Obstacle

CACHE = "set spec.model.cache instead of spec.model.stream"


def not_streamed(config: EngineConfig, model: ModelFacts | None) -> Iterator[Obstacle]:
    """Each field that cannot be had with spec.model.stream, where that is set; and a model that cannot."""
    if config.model.stream is None:
        return
    features, method = config.features, config.features.speculative
    for asked, field, why in (
        (features.sleep, "spec.engine.sleep", "an engine that wakes reads its weights from a disk"),
        (features.reload, "spec.engine.reload", "new weights are read from a disk"),
        (features.speculative_draft is not None, "spec.engine.speculative.draftModel", "a draft model lies on a claim"),
        (
            method is SpeculativeMethod.Mtp,
            "spec.engine.speculative.method: Mtp",
            "layers that draft are read from a disk",
        ),
        (features.nodes > 1, "spec.parallelism", "machines could read different versions"),
    ):
        if asked:
            what = f"{field} is not built with spec.model.stream: {why}"
            yield Obstacle.of(ExitCode.FeatureNotBuilt, what, f"remove it, or {CACHE}")
    if model is not None and model.path is ModelPath.Transformers:
        what = f"spec.model.stream is not built for {model.architecture}, which transformers computes"
        yield Obstacle.of(ExitCode.FeatureNotBuilt, what, CACHE)
