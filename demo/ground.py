"""What the demo asks of a cluster, whoever's it is: `local.Testbed` and `current.CurrentContext` answer."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

Say = Callable[[str], None]


@dataclass(frozen=True)
class Image:
    """A container image. `identity` changes with its content as far as that can be known from here: the digest of its
    configuration where the demo built it, the reference itself where somebody else did.
    """

    reference: str
    identity: str


Images = Mapping[str, Image]
"""By target: operator, runtime, demo-weights."""


class Kubectl(Protocol):
    """Enough to read and write objects."""

    def kubectl(self, *args: str, input: str | None = None, timeout: float = 60.0) -> str:
        """kubectl's standard output; `TestbedError` with its complaint when it fails or takes longer (seconds)."""


class Ground(Kubectl, Protocol):
    """A cluster with everything the demo does to it."""

    @property
    def storage_class(self) -> str:
        """For the claim of the weights; empty: the cluster's default."""

    def tools(self, say: Say) -> str:
        """Has its programs at hand afterwards; returns what there is to say of them."""

    def prepare(self, say: Say) -> str:
        """Returns, once the cluster is there and fit for the demo, what it is. Raises `TestbedError` otherwise."""

    def helm(self, *args: str) -> str:
        """helm's standard output; `TestbedError` with its complaint."""

    def reach(self, namespace: str, service: str) -> AbstractContextManager[str]:
        """The URL of a Service's first port, good on this machine while the context is open."""

    def next_steps(self) -> list[str]:
        """Commands for a person's shell: look at the service, ask it, take the demo down."""

    def down(self, say: Say) -> str:
        """Takes away what the demo made; returns what stays, if anything."""


class Source(Protocol):
    """Where the images come from: `images.Nodes`, `image_source.Registry`, `image_source.Kind`."""

    def begin(self, say: Say) -> None:
        """Starts what takes long, as long as something else is done before `provide`."""

    def provide(self, say: Say) -> Images:
        """Builds and loads what it has to, so that pods can name the references it returns."""
