"""Simulated nodes, described in pools and written through the API server like a kubelet would.

A node is created with its whole status: capacity, addresses and the Ready condition. That saves one write
per node against creating it first and reporting later, and a thousand nodes are made in seconds. From then
on KWOK plays the kubelet (stages/).
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.rig.api import Api

NODES = "/api/v1/nodes"
PREFIX = "rig.cohort-extender.io"
SIMULATED = f"{PREFIX}/simulated"
HEARTBEAT = f"{PREFIX}/heartbeat-seconds"
CREATIONS_AT_ONCE = 32
DEFAULT_CAPACITY = {"cpu": "32", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110"}


@dataclass(frozen=True)
class NodePool:
    """*count* like nodes, called `<name>-0` and so on.

    `capacity` is added to a usual machine's: NodePool(name="a100", capacity={"nvidia.com/gpu": "8"}).
    `taints` are written as kubectl does: "key=value:Effect" or "key:Effect".
    """

    name: str
    count: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[str] = ()
    capacity: Mapping[str, str | int] = field(default_factory=dict)

    def nodes(self, *, heartbeat_s: int) -> Iterator[dict[str, Any]]:
        """The Node objects of this pool."""
        for index in range(self.count):
            yield self._node(f"{self.name}-{index}", heartbeat_s)

    def _node(self, name: str, heartbeat_s: int) -> dict[str, Any]:
        quantities = {key: str(value) for key, value in self.capacity.items()}
        capacity = {**DEFAULT_CAPACITY, **quantities}
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            f"{PREFIX}/pool": self.name,
            SIMULATED: "true",
            **self.labels,
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": {HEARTBEAT: str(heartbeat_s)}},
            "spec": {"taints": [taint(text) for text in self.taints]},
            "status": {
                "capacity": capacity,
                "allocatable": capacity,
                "conditions": _conditions(),
                "addresses": [{"type": "Hostname", "address": name}],
                "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux"} | _NO_MACHINE,
            },
        }


_NO_MACHINE = dict.fromkeys(
    ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion"), ""
) | {"kubeletVersion": "simulated", "kubeProxyVersion": ""}


def taint(text: str) -> dict[str, str]:
    """The taint that *text* names, as kubectl reads it."""
    key_value, _, effect = text.rpartition(":")
    key, _, value = key_value.partition("=")
    if not key or effect not in {"NoSchedule", "PreferNoSchedule", "NoExecute"}:
        raise ValueError(f"taint {text!r}: want key=value:Effect or key:Effect")
    return {"key": key, "effect": effect} | ({"value": value} if value else {})


async def create_nodes(api: Api, pools: Sequence[NodePool], *, heartbeat_s: int) -> list[str]:
    """Create every node of *pools*; their names."""
    nodes = [node for pool in pools for node in pool.nodes(heartbeat_s=heartbeat_s)]
    room = asyncio.Semaphore(CREATIONS_AT_ONCE)

    async def create(node: dict[str, Any]) -> None:
        async with room:
            await api.create(NODES, node)

    async with asyncio.TaskGroup() as tasks:
        for node in nodes:
            tasks.create_task(create(node))
    return [node["metadata"]["name"] for node in nodes]


def is_schedulable(node: dict[str, Any]) -> bool:
    """Ready, and the node controller has taken its not-ready taint away."""
    ready = any(
        each["type"] == "Ready" and each["status"] == "True" for each in node.get("status", {}).get("conditions", ())
    )
    taints = node.get("spec", {}).get("taints", ())
    return ready and not any(each["key"].startswith("node.kubernetes.io/") for each in taints)


def _conditions() -> list[dict[str, str]]:
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    calm = {"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "Ready": "True"}
    return [
        {
            "type": kind,
            "status": status,
            "reason": "Simulated",
            "message": "simulated by the rig",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for kind, status in calm.items()
    ]
