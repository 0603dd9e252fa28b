"""One mount namespace a node, so that no mount of its kubelet and containers is ever one of the host's.

Also the folders those programs insist on (`/var/lib/kubelet/device-plugins`, `/var/log/containers`, CNI's cache, the
shims' sockets) are each node's own in there. The namespace ends with its last process and the file that names it.
"""

import shlex
from pathlib import Path

from testbed.command import run
from testbed.host.ledger import FOLDERS

PRIVATE = (*FOLDERS, "/var/log")


def handle(testbed: Path, node: int) -> Path:
    """The file that names the namespace, for `nsenter --mount=`."""
    return testbed / "mounts" / f"node{node}"


def create(testbed: Path, node: int) -> Path:
    """Makes the namespace; its private folders lie in the node's own."""
    file = handle(testbed, node)
    if not file.parent.exists():
        file.parent.mkdir(parents=True)
        run(["mount", "--bind", file.parent, file.parent])
        run(["mount", "--make-private", file.parent])  # the kernel keeps namespace files on private mounts only
    file.touch()
    # Slave: what is unmounted on the host goes here too. Then shared, as kubelets expect for mount propagation.
    # Image builds' layers mounted just now would stay busy here after the build let them go: out with them. One that
    # is gone before its turn comes is as good.
    layers = """awk '$3 == "overlay" && $2 != "/" { print $2 }' /proc/mounts |
        while read -r layer; do umount -l "$layer" 2>/dev/null || ! mountpoint -q "$layer"; done"""
    steps = [layers, "mount --make-rshared /"]
    for target in PRIVATE:
        source = testbed / f"node{node}" / "private" / target.strip("/").replace("/", "-")
        source.mkdir(parents=True)
        steps.append(f"mount --bind {shlex.quote(str(source))} {target}")
    run(["unshare", f"--mount={file}", "--propagation", "slave", "sh", "-ec", "; ".join(steps)])
    return file
