"""How our images get to nodes: layers that a node lacks, and large ones that it starts with."""

from pathlib import Path

from testbed import Cluster
from testbed.images import build as images
from testbed.images import packed
from testbed.nodes.kept_layers import CONTENT, LARGE


def test_a_node_is_sent_only_the_layers_it_lacks(node_cluster: Cluster, tmp_path: Path) -> None:
    folder = images.build("stubs")
    node_cluster.load(folder, print)
    said: list[str] = []
    node_cluster.load(folder, said.append)
    assert all(line.endswith("already there") for line in said)
    (there,) = packed.read(folder)
    renamed = packed.Packed("graphpod.dev/stubs:other", there.manifest + b"\n", there.config, there.layers)
    packed.lay_out([renamed], other := tmp_path / "other")
    said.clear()
    node_cluster.load(other, said.append)
    assert all(line.endswith("s, 0.0 MB") for line in said), said


def test_a_node_begins_with_the_large_layers_of_our_images(node_cluster: Cluster) -> None:
    large = [layer.digest for layer in packed.read(images.build("runtime"))[0].layers if layer.size >= LARGE]
    assert large
    for node in ("node1", "node2"):
        content = node_cluster.folder / node / "containerd" / CONTENT
        assert all((content / digest.removeprefix("sha256:")).stat().st_nlink > 1 for digest in large)
