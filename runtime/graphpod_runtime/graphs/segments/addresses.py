"""Memory that captured code may touch besides the pool: weights, static buffers, the break arena, the KV cache."""

from torch import Tensor, nn


class AddressChanged(RuntimeError):
    """A registered tensor moved after graphs had frozen its address; every replay would read the old place."""


class Addresses:
    """The registered tensors, and where their storages were."""

    def __init__(self) -> None:
        self._tensors: dict[str, tuple[Tensor, int]] = {}
        self._storages: set[int] = set()
        self._modules: list[tuple[str, nn.Module]] = []

    def register(self, name: str, tensor: Tensor) -> None:
        """Captured code may read and write `tensor`'s storage from now on. A name given again replaces the old."""
        self._tensors[name] = (tensor, tensor.untyped_storage().data_ptr())
        self._storages = {address for _, address in self._tensors.values()}

    def register_module(self, module: nn.Module, prefix: str = "") -> None:
        """Registers every parameter and buffer of `module` behind `prefix`, and remembers the module: a replaced one is
        noticed."""
        self._modules.append((prefix, module))
        for name, tensor in _members(prefix, module):
            self.register(name, tensor)

    def knows(self, tensor: Tensor) -> bool:
        """Whether `tensor` is a view of something registered."""
        return tensor.untyped_storage().data_ptr() in self._storages

    def verify(self) -> None:
        """AddressChanged when a registered tensor, or a member of a registered module, is elsewhere than it was."""
        now = {name: tensor for name, (tensor, _) in self._tensors.items()}
        for prefix, module in self._modules:
            now |= dict(_members(prefix, module))
        for name, (_, address) in self._tensors.items():
            if now[name].untyped_storage().data_ptr() != address:
                raise AddressChanged(
                    f"{name} was reallocated after capture; graphs still read its old address. "
                    "Write into it with copy_ instead of replacing it"
                )


def _members(prefix: str, module: nn.Module) -> list[tuple[str, Tensor]]:
    return [(prefix + name, tensor) for name, tensor in (*module.named_parameters(), *module.named_buffers())]
