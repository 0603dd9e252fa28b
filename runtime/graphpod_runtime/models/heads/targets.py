"""Where the tensors of a head's checkpoint go."""

from graphpod_runtime.models.decoder import DecoderBody, DecoderLayer, Linear
from graphpod_runtime.models.norm import RmsNorm
from graphpod_runtime.models.tensor_destination import Destination, Target


def linear_targets(name: str, linear: Linear, rows: int) -> dict[str, Destination]:
    """Of a whole matrix of `rows` outputs."""
    found: dict[str, Destination] = {
        f"{name}.{suffix}": one for suffix, one in linear.weight.destinations(0, rows).items()
    }
    if linear.bias is not None:
        found[f"{name}.bias"] = Target(linear.bias, 0, rows)
    return found


def norm_target(name: str, norm: RmsNorm) -> dict[str, Destination]:
    """Of a norm."""
    return {f"{name}.weight": Target(norm.weight, 0, norm.weight.shape[0])}


def layer_targets(prefix: str, body: DecoderBody) -> dict[str, Destination]:
    """Of every layer; `prefix` takes its number."""
    found: dict[str, Destination] = {}
    for index, layer in enumerate(body.layers):
        assert isinstance(layer, DecoderLayer)
        found |= {f"{prefix.format(index)}.{name}": one for name, one in layer.targets().items()}
    return found
