"""The termination message: the last report, in at most the 4 KiB that Kubernetes keeps."""

import json
from pathlib import Path

from graphpod_sources.progress import Snapshot

PATH = Path("/dev/termination-log")
MOST = 4096
"""Bytes; source: kubelet's MaxContainerTerminationMessageLength."""


def message(snapshot: Snapshot) -> bytes:
    """The report as JSON; a long message is cut, never the JSON."""
    document = snapshot.document()
    content = json.dumps(document).encode()
    while len(content) > MOST and document["message"]:
        document["message"] = document["message"][: len(document["message"]) * 3 // 4]
        content = json.dumps(document).encode()
    return content


def write(snapshot: Snapshot, path: Path = PATH) -> None:
    """Write it where the kubelet reads it. Outside of a pod there is no such file, and none is made in /dev."""
    if path.exists() or path != PATH:
        path.write_bytes(message(snapshot))
