"""Messages name fields of a spec, which whoever starts an engine by a command line does not have: the same in flags."""

import re
from collections.abc import Mapping

BY_FLAGS = "GRAPHPOD_BY_FLAGS"
"""Environment variable, set: whoever started this engine has flags and no spec. Its processes inherit it."""

MEMORY = "the memory of this machine or container"

FLAGS: dict[str, str] = {
    "set spec.engine.attention: Auto": "use another device or model",
    "spec.engine.dtype": "--dtype",
    "spec.engine.hostCache": "--host-cache",
    "spec.engine.hostCache.size": "--host-cache",
    "spec.engine.hostCache.file": "--host-cache-folder",
    "spec.engine.kvCacheDtype": "--kv-cache-dtype",
    "spec.engine.kvCacheDtype: ": "--kv-cache-dtype ",
    "spec.engine.maxBatch": "--max-batch",
    "spec.engine.maxModelLen": "--max-model-len",
    "spec.engine.prefillBudget": "--prefill-budget",
    "spec.engine.quantization": "--quantization",
    "spec.engine.quantization: ": "--quantization ",
    "spec.engine.reload": "--reload",
    "spec.engine.reload: true": "--reload",
    "spec.engine.sleep": "--sleep",
    "spec.engine.sleep: true": "--sleep",
    "spec.engine.speculative": "--speculative",
    "spec.engine.speculative.draftModel": "--draft-model",
    "spec.engine.speculative.draftTokens": "--draft-tree-tokens",
    "spec.engine.speculative.maxBatch": "--drafts-max-batch",
    "spec.engine.speculative.method": "--speculative",
    "spec.engine.speculative.method: ": "--speculative ",
    "spec.engine.speculative.steps": "--draft-tokens",
    "spec.engine.speculative.topk": "--draft-topk",
    "spec.graph.decode": "--decode",
    "spec.graph.prefill": "--prefill",
    "spec.graph.prefill: Disabled": "--prefill Disabled",
    "spec.graph.decode: Disabled": "--decode Disabled",
    "spec.graph.sizes": "--prefill-sizes or --decode-sizes",
    "spec.graph.sizes.prefill": "--prefill-sizes",
    "spec.graph.sizes.decode": "--decode-sizes",
    "spec.model": "--model",
    "spec.parallelism.expert": "--expert-parallel",
    "spec.parallelism.expert: ": "--expert-parallel ",
    "spec.parallelism.nodes": "--nodes",
    "spec.parallelism.pipeline": "--pipeline-parallel",
    "spec.parallelism.pipeline: ": "--pipeline-parallel ",
    "spec.parallelism.tensor": "--tensor-parallel",
    "spec.parallelism.tensor: ": "--tensor-parallel ",
    "spec.parallelism: ": "ranks: ",
    "change spec.parallelism to sizes": "change --tensor-parallel, --expert-parallel or --pipeline-parallel to sizes",
    "spec.resources.limits.memory": MEMORY,
    "the pod's memory limit": "the container's memory limit",
    "a pod has at most": "a machine has at most",
    # Steps that no flag takes.
    "set spec.graph.onUnsupported: Degrade to run": "leave --prefill and --decode out to run",
    "set nvidia.com/gpu in spec.resources.limits, and use the CUDA image on a node with GPUs; outside Kubernetes, ": "",
}
"""A row for each field that a start's messages name; the longest that fits counts."""

ARGUMENTS = {
    field: re.sub(
        "--([a-z-]+)( (?=[A-Z]|$))?",
        lambda flag: flag[1].replace("-", "_") + ("=" if flag[2] else ""),
        words,
    )
    for field, words in FLAGS.items()
} | {"--device cpu": 'device="cpu"'}
"""The same for arguments of the library's Engine, which have the flags' names."""

OF_TREES = {"draftTokens": "--draft-tree-tokens", "topk": "--draft-topk", "steps": "--draft-tokens"}
"""The same for fields of spec.engine.speculative by their own names."""


def in_flags(message: str, rows: dict[str, str] = FLAGS) -> str:
    """`message` for a reader who has flags."""
    longest_first = sorted(rows, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), lambda found: rows[found[0]], message)


def in_own_words(message: str, environ: Mapping[str, str]) -> str:
    """`message` for whoever started the engine that has this environment."""
    return in_flags(message) if environ.get(BY_FLAGS) else message
