"""Calls that hand a tensor's values to Python: a graph would freeze them."""

from torch import Tensor

HOST_READS: dict[object, str] = {
    getattr(Tensor, name): name
    for name in (
        "__array__",
        "__bool__",
        "__contains__",
        "__float__",
        "__index__",
        "__int__",
        "item",
        "numpy",
        "tolist",
    )
}
"""Methods of Tensor, and their names."""
