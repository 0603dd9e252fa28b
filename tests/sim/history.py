"""Every version that was ever written, as a watch saw it: nothing that was said hides between two looks."""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.places import Manifest, Place


@dataclass
class History:
    """The objects of one kind in a namespace, each version in its order."""

    seen: list[Manifest] = field(default_factory=list)

    @classmethod
    @contextmanager
    def of(cls, place: Place, kind: str = "gisvc") -> Iterator["History"]:
        history = cls()
        argv = [place.cluster.binary("kubectl"), "-n", place.namespace, "get", kind, "--watch", "-o", "json"]
        watch = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=place.cluster.environment())
        reader = threading.Thread(target=history._read, args=(watch,), daemon=True)
        reader.start()
        try:
            yield history
        finally:
            watch.terminate()
            watch.wait(10)
            reader.join(10)

    def _read(self, watch: "subprocess.Popen[str]") -> None:
        assert watch.stdout is not None
        decoder, text = json.JSONDecoder(), ""
        for line in watch.stdout:
            text += line
            if line.startswith("}"):  # documents are indented: only their ends stand there
                document, _ = decoder.raw_decode(text.strip())
                self.seen.append(document)
                text = ""

    def conditions(self, name: str) -> list[dict[str, str]]:
        """The status of each condition by type, one entry for each version of the service."""
        return [
            {row["type"]: row["status"] for row in found.get("status", {}).get("conditions", ())}
            for found in self.seen
            if found["metadata"]["name"] == name
        ]
