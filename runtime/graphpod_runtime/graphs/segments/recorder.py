"""The CPU twin of stream capture: notes the ops of a stretch of code, so that they can run again without its Python.

Like a captured stream it freezes addresses, shapes and host values, and re-runs nothing but device work. Ops run for
real while they are noted, because later ops need their shapes; `cpu.py` overwrites their results when the capture
ends, since a CUDA capture would not have computed them.

What is noted for replay:
- an op with a fresh result: again, into the place the result got in the pool;
- an op that writes its arguments (in place, `out=`, custom ops that declare it): again, as it is;
- a view: nothing. Views are recognized by shared storage, not by schema, so a reshape that copies is noted.

Only addresses are kept of pool memory. Weights and buffers are kept by reference.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from graphpod_runtime.base.errors import CaptureFailed
from graphpod_runtime.base.host_reads import HOST_READS
from graphpod_runtime.graphs.segments.addresses import Addresses
from graphpod_runtime.graphs.segments.arena import Arena

Call = Callable[[], object]
"""One op, ready to run again."""

UNWRITTEN = frozenset(
    {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided"}
)
"""Ops whose result has no content yet: a place in the pool, nothing to run again."""

COPIES = frozenset({"aten::_to_copy", "aten::clone"})
"""Ops whose result is their first argument, converted: replayed as one copy."""

MOVES = frozenset({"aten::set_", "aten::resize_", "aten::resize_as_", "aten::_resize_output_"})
"""Ops that give a tensor other memory."""


class HostReadGuard(TorchFunctionMode):
    """Refuses calls that hand a tensor's values to Python. A dispatch mode does not see all of them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in HOST_READS:
            raise CaptureFailed(
                f"captured code reads a tensor on the host (Tensor.{HOST_READS[func]}): the value would be frozen into "
                "the graph. Keep it on the device, or move the read into a break"
            )
        return func(*args, **(kwargs or {}))


class Recorder(TorchDispatchMode):
    """Notes every op of this thread while active. `calls` is what to run again, in order."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would guard the dispatch function against its compiler, and import all of it (3 s) to do so."""
        return False

    def __init__(self, arena: Arena, addresses: Addresses) -> None:
        super().__init__()
        self._arena = arena
        self._addresses = addresses
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        inputs = list(_tensors((args, kwargs)))
        self._refuse(func, args, kwargs, inputs)
        before = {tensor.untyped_storage().data_ptr() for tensor in inputs if tensor.numel()}
        # Shapes and strides as the op saw them: ops like squeeze_ change their argument's own.
        frozen_args, frozen_kwargs = _mapped(self._frozen, args), _mapped(self._frozen, kwargs)
        result = func(*args, **kwargs)
        places: list[Tensor | None] = []

        def settle(output: Tensor) -> Tensor:
            if output.numel() == 0 or output.untyped_storage().data_ptr() in before:
                places.append(None)
                return output
            place = self._arena.empty_like(output)
            places.append(self._arena.alias(place))
            return place.copy_(output)

        settled = _mapped(settle, result)
        if any(place is not None for place in places):
            if func._schema.name not in UNWRITTEN:
                self.calls.append(_into(func, frozen_args, frozen_kwargs, places))
        elif func._schema.is_mutable and torch.Tag.inplace_view not in func.tags:
            self.calls.append(partial(func._op, *frozen_args, **frozen_kwargs))
        return settled

    def note(self, code: Callable[..., Any], arguments: tuple[Any, ...], result: Any) -> Any:
        """Notes a call whose result is fresh; returns the result in its places in the pool."""
        frozen = pytree.tree_map_only(Tensor, self._frozen, arguments)
        settled = pytree.tree_map_only(Tensor, self._arena.empty_like, result)
        places = [self._arena.alias(tensor) for tensor in pytree.tree_leaves(settled)]

        def again() -> None:
            for place, output in zip(places, pytree.tree_leaves(code(*frozen)), strict=True):
                place.copy_(output)

        self.calls.append(again)
        return settled

    def _frozen(self, tensor: Tensor) -> Tensor:
        """What a noted call keeps of an argument."""
        return self._arena.alias(tensor) if self._arena.owns(tensor) else tensor.detach()

    def _refuse(self, func: OpOverload, args: Any, kwargs: Any, inputs: list[Tensor]) -> None:
        name = func._schema.name
        if name in MOVES:
            raise CaptureFailed(f"captured code calls {name}, which moves a tensor to other memory; write with copy_")
        if torch.Tag.data_dependent_output in func.tags:
            raise CaptureFailed(
                f"captured code calls {name}, which reads values on the host: they would be frozen into the graph. "
                "Keep them on the device, or move the call into a break"
            )
        if torch.Tag.dynamic_output_shape in func.tags and not _indexes_by_integers(name, args):
            raise CaptureFailed(
                f"captured code calls {name}, whose result's shape depends on values; a graph's shapes are fixed. "
                "Use a masked form, or move the call into a break"
            )
        if torch.Tag.nondeterministic_seeded in func.tags and kwargs.get("generator") is None:
            raise CaptureFailed(
                f"captured code draws random numbers with {name} and no generator; sample after the graph"
            )
        for tensor in inputs:
            if tensor.numel() and not self._arena.owns(tensor) and not self._addresses.knows(tensor):
                raise CaptureFailed(
                    f"{name} reads a tensor {list(tensor.shape)} that is neither registered nor made in this capture: "
                    "its values would be frozen into the graph. Put it into a static buffer or register it"
                )


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors among an op's arguments or results, which are nested in tuples, lists and dicts alone: a walk that
    knows only these takes a fifth of the time of torch's own, on every op of every capture."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _mapped(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """`value` with `function` of each of its tensors."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, (tuple, list)):
        return type(value)([_mapped(function, one) for one in value])
    if isinstance(value, dict):
        return {name: _mapped(function, one) for name, one in value.items()}
    return value


def _indexes_by_integers(name: str, args: Any) -> bool:
    """`aten::index` carries the dynamic-shape tag for masks only."""
    return name == "aten::index" and all(
        index is None or index.dtype not in (torch.bool, torch.uint8) for index in args[1]
    )


def _into(func: OpOverload, args: Any, kwargs: Any, places: list[Tensor | None]) -> Call:
    """`func` again, its fresh results written to `places` (None: an output that is a view of an argument)."""
    name = func._schema.name
    if name in COPIES:
        return partial(torch.ops.aten.copy_.default._op, places[0], args[0])
    names = _out_variant(func)
    if names is not None and None not in places:
        overload, outs = names
        return partial(overload._op, *args, **kwargs, **dict(zip(outs, places, strict=True)))
    operation = func._op

    def again() -> None:
        for place, output in zip(places, _tensors(operation(*args, **kwargs)), strict=True):
            if place is not None:
                place.copy_(output)

    return again


@cache
def _out_variant(func: OpOverload) -> tuple[OpOverload, tuple[str, ...]] | None:
    """The overload that takes the same arguments and writes its results to given tensors, and their names."""
    wanted = [(argument.name, str(argument.type)) for argument in func._schema.arguments]
    packet = func.overloadpacket
    for name in packet.overloads():
        schema = getattr(packet, name)._schema
        outs = tuple(argument.name for argument in schema.arguments if argument.is_out)
        taken = [(argument.name, str(argument.type)) for argument in schema.arguments if not argument.is_out]
        if taken == wanted and len(outs) == len(func._schema.returns) > 0:
            return getattr(packet, name), outs
    return None
