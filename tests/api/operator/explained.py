"""`graphpod explain gisvc/NAME` as a user of the cluster runs it."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.places import Place

GRAPHPOD = Path(sys.executable).with_name("graphpod")


def explained(
    place: Place, name: str, *arguments: str, program: Sequence[str | Path] = (GRAPHPOD,)
) -> subprocess.CompletedProcess[str]:
    """The command, or (`program`) that of another version."""
    command = [*program, "explain", f"gisvc/{name}", "-n", place.namespace, *arguments]
    environment = {**os.environ, "KUBECONFIG": str(place.cluster.kubeconfig)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
