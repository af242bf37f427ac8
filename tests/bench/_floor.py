"""What the machine can do at all: raw requests to the API server alone, without webhook, policy, watcher or service.

The three writes of a workload's life, each with what it costs the API server and etcd in CPU. Nobody can be faster with
one write per admission, whatever decides.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable

import orjson

from tests.bench._machine import Figures, cpu_s
from tests.bench._raw import STRATEGIC, Raw, queued_pod
from tests.rig import Rig

IN_FLIGHT = 16
NAMESPACE = "floor"
GATE = "cohort-extender.io/admission"


async def in_flight(count: int, act: Callable[[int], Awaitable[object]], *, width: int = IN_FLIGHT) -> None:
    """Run ``act(0)`` … ``act(count - 1)``, *width* at a time."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await act(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(width, count)):
            group.create_task(work())


async def create_namespace(rig: Rig, name: str) -> None:
    """A namespace in which pods can be created."""
    await rig.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    await rig.wait_for(f"/api/v1/namespaces/{name}/serviceaccounts", bool, what="the default service account")


async def measure(rig: Rig, raw: Raw, *, count: int) -> Figures:
    """CPU ms of API server and etcd per request, and the requests a second, of each of the three writes."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    await create_namespace(rig, NAMESPACE)
    pods = []
    for number in range(count):
        pod = queued_pod(f"pod-{number}", queue="none", cpu=1)
        pod["spec"]["schedulingGates"] = [{"name": GATE}]
        pods.append(orjson.dumps(pod))
    gate = {"schedulingGates": [{"$patch": "delete", "name": GATE}], "nodeSelector": {"pool": "a100"}}
    ungate = orjson.dumps({"metadata": {"annotations": {GATE: "x" * 200}}, "spec": gate})
    finish = orjson.dumps({"status": {"phase": "Succeeded"}})
    writes: dict[str, Callable[[int], Awaitable[object]]] = {
        "create": lambda n: raw.must("POST", path, pods[n]),
        "ungate": lambda n: raw.must("PATCH", f"{path}/pod-{n}", ungate, kind=STRATEGIC),
        "finish": lambda n: raw.must("PATCH", f"{path}/pod-{n}/status", finish, kind=STRATEGIC),
    }
    found: Figures = {}
    for name, write in writes.items():
        servers = [rig.component(part).pid for part in ("kube-apiserver", "etcd")]
        began = [cpu_s(pid) for pid in servers]
        client_s, started = time.process_time(), time.monotonic()
        await in_flight(count, write)
        wall_s = time.monotonic() - started
        for part, pid, before in zip(("apiserver", "etcd"), servers, began, strict=True):
            found[f"{name}_{part}_cpu_ms"] = round((cpu_s(pid) - before) / count * 1e3, 3)
        found[f"{name}_client_cpu_ms"] = round((time.process_time() - client_s) / count * 1e3, 3)
        found[f"{name}_per_s"] = round(count / wall_s, 1)
    await raw.must("DELETE", f"/api/v1/namespaces/{NAMESPACE}", b"")
    return found


def floor_s(costs: Figures, workloads: int) -> float:
    """Seconds in which this machine can carry *workloads* through their three writes, its cores doing nothing else."""
    cpu_ms = sum(value for key, value in costs.items() if key.endswith("_cpu_ms"))
    return workloads * cpu_ms / 1e3 / (os.cpu_count() or 1)
