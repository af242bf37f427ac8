"""The rig: real control planes with simulated nodes, for tests and for trying things out (docs/rig.md)."""

from tests.rig.api import Api, ApiError
from tests.rig.kubectl import KubectlError
from tests.rig.nodes import NodePool
from tests.rig.process import Process, ProcessError
from tests.rig.rig import Rig

__all__ = ["Api", "ApiError", "KubectlError", "NodePool", "Process", "ProcessError", "Rig"]
