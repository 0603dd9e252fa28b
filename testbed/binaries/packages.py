"""What comes from Debian: named in one table, checked on every build, installed when we may."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.command import run
from testbed.errors import TestbedError

PACKAGES = {
    "containerd": "runs the pods' containers",
    "runc": "starts a container",
    "containernetworking-plugins": "gives pods their addresses",
    "iproute2": "network namespaces and routes",
    "iptables": "the kubelet looks for it",
    "nftables": "kube-proxy's rules",
    "conntrack": "kube-proxy forgets stale connections with it",
    "openssl": "the cluster's certificates",
    "gcc": "compiles the pause program",
    "libc6-dev": "to link it statically",
    "buildah": "builds the images",
    "mmdebstrap": "makes their base",
    "skopeo": "lays them out as files",
}
INSTALL_LIMIT = 600.0  # s
POLICY = Path("/usr/sbin/policy-rc.d")


def absent(dpkg_answer: str) -> list[str]:
    """Packages of the table that `dpkg-query -f '${Package} ${db:Status-Status}\\n'` does not call installed."""
    there = {line.split()[0] for line in dpkg_answer.splitlines() if line.split()[1:] == ["installed"]}
    return [name for name in PACKAGES if name not in there]


def ensure(report: Callable[[str], None] = print) -> None:
    """Installs what is missing when root; otherwise an error that holds the command."""
    try:
        query = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\\n", *PACKAGES]
        answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False).stdout
    except FileNotFoundError as e:
        raise TestbedError(f"this is not Debian (no dpkg-query): install by hand {', '.join(PACKAGES)}") from e
    missing = absent(answer)
    if not missing:
        return
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    if os.geteuid() != 0:
        raise TestbedError(f"Debian packages are missing: run `sudo apt-get update && sudo {' '.join(command)}`")
    report(f"Debian packages: installing {', '.join(f'{m} ({PACKAGES[m]})' for m in missing)} …")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _no_services():
        run(["apt-get", "update", "-qq"], timeout=INSTALL_LIMIT, env=env)
        run(command, timeout=INSTALL_LIMIT, env=env, remedy=f"try by hand: {' '.join(command)}")
    if "containerd" in missing and Path("/run/systemd/system").exists():
        run(["systemctl", "disable", "--now", "containerd"])  # the testbed starts its own, one a node
    report("Debian packages: installed")


@contextmanager
def _no_services() -> Iterator[None]:
    """No package starts a service meanwhile: Debian asks policy-rc.d, and 101 means no."""
    ours = not POLICY.exists()
    if ours:
        POLICY.write_text("#!/bin/sh\nexit 101\n")
        POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            POLICY.unlink()
