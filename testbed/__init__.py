"""A real Kubernetes cluster on this machine, for the demo and the tests.

`Cluster` brings one up and takes it down again; `python3 -m testbed` is the same by hand. Everything lives in network
namespaces, one folder and one cgroup a node, so several testbeds stand side by side and none leaves a trace.
Standard library only: the package runs before any virtual environment exists.
"""

from testbed.cluster import Cluster
from testbed.errors import TestbedError
from testbed.level import Level

__all__ = ["Cluster", "Level", "TestbedError"]
