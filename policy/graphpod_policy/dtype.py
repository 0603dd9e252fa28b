"""The element type of weights and activations: what the service asks for, else what its device and its model allow."""

from dataclasses import dataclass

from graphpod_policy.enums import Device
from graphpod_policy.model.architectures import ARCHITECTURES
from graphpod_policy.node import Capability

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""The types, by their names in torch, and what one element takes."""
FIELD = "spec.engine.dtype"
AMPERE: Capability = (8, 0)
"""The first GPUs that compute in bfloat16. On earlier ones (T4) it is emulated, many times slower, or has no kernel."""


@dataclass(frozen=True, slots=True)
class DtypeChoice:
    """The type that runs. `because` says why it is another than the device's usual one, else it is empty; where a
    request cannot be served `dtype` is what was asked for, and `refused` says why.
    """

    dtype: str
    because: str = ""
    refused: str = ""


def dtype_for(asked: str | None, device: Device, capability: Capability | None, architecture: str = "") -> DtypeChoice:
    """What `asked` names. None is Auto: float32 on a CPU, bfloat16 on a GPU; where the GPU has no bfloat16, float16, or
    float32 for a model whose activations float16 cannot hold. A `capability` of None is held against nothing.

    vLLM chooses the same and refuses the same; SGLang takes float16 there even where bfloat16 was asked for.
    """
    lacks = device is Device.Cuda and capability is not None and capability < AMPERE
    row = ARCHITECTURES.get(architecture)
    overflows = row is not None and row.overflows_float16
    too_large = f"activations of {architecture} are larger than float16 can hold"
    without = (
        "" if capability is None else f"a GPU of compute capability {capability[0]}.{capability[1]} has no bfloat16"
    )
    if asked is None:
        if device is Device.Cpu:
            return DtypeChoice("float32")
        if not lacks:
            return DtypeChoice("bfloat16")
        if overflows:
            return DtypeChoice("float32", f"{FIELD} is Auto: float32, because {without} and {too_large}")
        return DtypeChoice("float16", f"{FIELD} is Auto: float16, because {without}")
    if asked == "bfloat16" and lacks:
        return DtypeChoice(asked, refused=f"{FIELD}: {asked} cannot be served: {without}")
    if asked == "float16" and overflows:
        return DtypeChoice(asked, refused=f"{FIELD}: {asked} cannot be served: {too_large}")
    return DtypeChoice(asked)
