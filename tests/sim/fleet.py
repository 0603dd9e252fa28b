"""The stub engines of a simulated cluster as a process of their own."""

import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import stubs
from testbed import Cluster

STAGES = Path(stubs.__file__).with_name("stages.yaml")
STOP_SECONDS = 30


@dataclass
class FleetProcess:
    """Their admin ports, and the Stages that move their pods. `log` keeps what it said."""

    cluster: Cluster
    log: Path
    url: str = ""
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Returns when it listens; `url` is then the operator's `--admin-url`."""
        self.cluster.kubectl("apply", "--server-side", "-f", str(STAGES))
        arguments = ["-m", "stubs.fleet", "--kubeconfig", str(self.cluster.kubeconfig)]
        root = Path(stubs.__file__).parent.parent
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=log, text=True, cwd=root
            )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url, f"the fleet said nothing:\n{self.log.read_text()}"

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)
