"""Which engine image a pod runs."""

from typing import NamedTuple

from graphpod_operator.api.spec import Spec
from graphpod_operator.intent.resolver_input import wants_gpu


class Images(NamedTuple):
    """The engine images of services that name none, by what they run on."""

    cpu: str
    gpu: str

    def of(self, spec: Spec) -> str:
        """What the spec names, else the default for its resources."""
        return spec.engine.image or (self.gpu if wants_gpu(spec) else self.cpu)
