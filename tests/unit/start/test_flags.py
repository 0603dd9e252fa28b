"""What a start says to whoever has flags: no field of a spec that they do not have."""

import re
from pathlib import Path

import pytest

import graphpod_policy
import graphpod_runtime
from graphpod_policy.exit_codes import NEXT_STEP
from graphpod_policy.start.flags import ARGUMENTS, BY_FLAGS, FLAGS, in_flags, in_own_words

POLICY, ENGINE = (Path(str(package.__file__)).parent for package in (graphpod_policy, graphpod_runtime))
NOT_BY_FLAGS = (
    "spec.engine.attention", "spec.engine.cpuOffload", "spec.engine.deterministic", "spec.engine.fullCompile",
    "spec.engine.kvCacheMemory", "spec.engine.lora", "spec.engine.prefixCache",
    "spec.graph.compile", "spec.graph.onCaptureFailure", "spec.model.cache", "spec.model.stream",
    "spec.parallelism.allToAll", "spec.parallelism.context", "spec.parallelism.data",
    "spec.parallelism.expertRebalancing", "spec.parallelism.symmetricMemory", "spec.parallelism.twoBatchOverlap",
    "spec.resources.limits",
)  # fmt: skip
"""What no flag sets, so that no message of a start by flags is about it."""


@pytest.mark.parametrize(
    ("message", "flags"),
    [
        ("one sequence of spec.engine.maxModelLen 100000 needs", "one sequence of --max-model-len 100000 needs"),
        ("spec.engine.hostCache.size 32Gi does not fit", "--host-cache 32Gi does not fit"),
        (
            "raise spec.resources.limits.memory by at least 9Gi",
            "raise the memory of this machine or container by at least 9Gi",
        ),
        (
            "leave spec.engine.maxModelLen out (Auto), or set spec.engine.kvCacheDtype: Fp8, or use a larger GPU",
            "leave --max-model-len out (Auto), or set --kv-cache-dtype Fp8, or use a larger GPU",
        ),
        ("shorten spec.graph.sizes", "shorten --prefill-sizes or --decode-sizes"),
        ("give even sizes in spec.graph.sizes.decode", "give even sizes in --decode-sizes"),
        ("spec.engine.quantization: Fp8 is not built", "--quantization Fp8 is not built"),
        ("set spec.parallelism.expert: 2", "set --expert-parallel 2"),
        ("spec.engine.speculative.draftModel: it has 8 positions", "--draft-model: it has 8 positions"),
    ],
)
def test_a_message_names_the_flag_of_a_field(message: str, flags: str) -> None:
    assert in_flags(message) == flags
    assert in_own_words(message, {}) == message
    assert in_own_words(message, {BY_FLAGS: "1"}) == flags


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("set spec.parallelism.tensor to 1 or 3, which this model", "set tensor_parallel to 1 or 3, which this model"),
        ("or set spec.parallelism.tensor: 1", "or set tensor_parallel=1"),
        ("set spec.graph.decode: Disabled to run", "set decode=Disabled to run"),
        ("shorten spec.graph.sizes", "shorten prefill_sizes or decode_sizes"),
        ("set spec.graph.onUnsupported: Degrade to run", "leave prefill and decode out to run"),
        ("use graphpod-engine serve --nodes", "use graphpod-engine serve --nodes"),
    ],
)
def test_a_message_names_the_argument_of_a_field(message: str, arguments: str) -> None:
    assert in_flags(message, ARGUMENTS) == arguments


def test_every_field_that_a_start_names_has_a_flag_or_cannot_be_asked_for_by_one() -> None:
    files = [*POLICY.glob("start/*.py"), POLICY / "dtype.py", POLICY / "attention.py", *ENGINE.glob("engine/**/*.py")]
    text = "\n".join(file.read_text() for file in files if file.name != "flags.py")
    named = set(re.findall(r"spec\.(?:engine|graph|model|parallelism|resources)(?:\.[A-Za-z]+[a-z])*", text))
    assert "spec.engine.maxModelLen" in named
    assert named - FLAGS.keys() - set(NOT_BY_FLAGS) <= {
        "spec.engine",
        "spec.graph",
        "spec.parallelism",
        "spec.resources",
    }


def test_next_steps_name_no_field_that_has_no_flag() -> None:
    left = {code.name for code, step in NEXT_STEP.items() if "spec." in in_flags(step)}
    assert left == {"KvCacheTooLarge"}  # of spec.engine.kvCacheMemory, which no flag sets
