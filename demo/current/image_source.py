"""Images for a cluster that is not ours: where they are said to be, or loaded into the nodes of kind."""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from demo import images
from demo.ground import Image, Images, Say
from testbed.binaries import packages
from testbed.command import run
from testbed.errors import TestbedError
from testbed.images.build import IMAGES, save

LOAD_LIMIT = 600.0  # s for one archive into every node
KIND = "kind-"  # what kind puts before a cluster's name to name its context

VARIABLES = {"operator": "OPERATOR_IMAGE", "runtime": "RUNTIME_IMAGE", "demo-weights": "WEIGHTS_IMAGE"}


@dataclass(frozen=True)
class Registry:
    """Images that somebody put where the cluster's nodes find them; whether they do, the first pod shows.

    `prefix` stands before each name (`registry.example/graphpod` gives `registry.example/graphpod/operator:0.1.0`);
    `named` holds whole references by target, which win.
    """

    prefix: str = ""
    named: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        missing = [variable for target, variable in VARIABLES.items() if not self.prefix and target not in self.named]
        if missing:
            raise TestbedError(
                f"the demo does not guess where your cluster finds graphpod's images; {', '.join(missing)} not given.\n"
                "push what `make images-demo` builds and name the place: IMAGES=registry.example/graphpod, or each\n"
                "with OPERATOR_IMAGE=…, RUNTIME_IMAGE=… and WEIGHTS_IMAGE=…; on kind: LOAD=kind "
                "(docs/operations/install.md)"
            )

    def begin(self, say: Say) -> None:
        """Nothing is built."""

    def provide(self, say: Say) -> Images:
        return {target: self._image(target) for target in images.TARGETS}

    def _image(self, target: str) -> Image:
        name = IMAGES[target].tag.rpartition("/")[2]
        reference = self.named.get(target) or f"{self.prefix.rstrip('/')}/{name}"
        return Image(reference, reference)


@dataclass(frozen=True)
class Kind:
    """Images built here and handed to the nodes of a kind cluster, by its own command."""

    cluster: str

    @classmethod
    def of(cls, context: str) -> "Kind":
        """The kind cluster of a context, which kind names `kind-NAME`."""
        if not context.startswith(KIND):
            raise TestbedError(
                f"LOAD=kind, but the context {context!r} is not one of kind's, which begin with {KIND!r}: "
                "give IMAGES=… instead, or choose kind's context with `kubectl config use-context`"
            )
        return cls(context.removeprefix(KIND))

    def begin(self, say: Say) -> None:
        packages.ensure(say)

    def provide(self, say: Say) -> Images:
        program = shutil.which("kind")
        if program is None:
            raise TestbedError("LOAD=kind, but kind is not on PATH: kind.sigs.k8s.io says how to install it")
        layouts = images.layouts(say)
        for target, layout in layouts.items():
            say(f"{target}: kind load image-archive")
            with tempfile.TemporaryDirectory(prefix="graphpod-kind-") as folder:
                archive = Path(folder) / f"{target}.tar"
                save(layout, archive)
                run([program, "load", "image-archive", str(archive), "--name", self.cluster], timeout=LOAD_LIMIT)
        return images.built(layouts)
