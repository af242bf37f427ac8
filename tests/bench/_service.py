"""The product installed on a rig for a benchmark: its own processes' costs, its counters, and the objects of a plan."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import aiohttp
import orjson

from tests.bench._floor import in_flight
from tests.bench._machine import Figures, cpu_s, rss_mb
from tests.bench._plan import Plan
from tests.bench._raw import Raw
from tests.e2e.installation import Installation
from tests.rig import Rig

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
FLAVOR = "any-node"
_REQUESTS = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<count>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_READS = ("GET", "LIST", "WATCH", "CONNECT")


async def install(rig: Rig, *, settings: dict[str, Any] | None = None, overlay: str = "default") -> Installation:
    """The shipped manifests and one replica, without a scheduler."""
    installation = Installation(rig, overlay=overlay, settings=settings)
    await installation.install()
    await rig.component("kube-scheduler").kill()
    return installation


async def until_leading(installation: Installation, *, timeout_s: float = 60.0) -> None:
    """Wait until the replica may write: what is submitted before waits for the lease, which is not the question."""
    deadline_s = time.monotonic() + timeout_s
    while not (await dump(installation))["leads"]:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"no leader after {timeout_s:g} s\n{installation.service.tail()}")
        await asyncio.sleep(0.1)


async def dump(installation: Installation) -> dict[str, Any]:
    """What ``/debug/dump`` of the first replica says."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{installation.replicas[0].url}/debug/dump") as answer,
    ):
        said: dict[str, Any] = orjson.loads(await answer.read())
        return said


async def metrics(installation: Installation) -> str:
    """The metrics of the first replica."""
    async with aiohttp.ClientSession() as session, session.get(f"{installation.replicas[0].url}/metrics") as answer:
        return await answer.text()


async def create_queues(raw: Raw, plan: Plan, *, namespace: str) -> None:
    """The flavor, priorities and queues of *plan*, with LocalQueues of the same names in *namespace*."""
    await raw.must("POST", f"{KUEUE}/resourceflavors", orjson.dumps(object_of("ResourceFlavor", FLAVOR, spec={})))
    for kind in plan.classes.values():
        body = {**object_of("WorkloadPriorityClass", kind.name), "value": kind.priority}
        await raw.must("POST", f"{KUEUE}/workloadpriorityclasses", orjson.dumps(body))
    cluster_queues = [orjson.dumps(object_of("ClusterQueue", one.name, spec=_spec(one))) for one in plan.queues]
    local_queues = [
        orjson.dumps(object_of("LocalQueue", one.name, spec={"clusterQueue": one.name})) for one in plan.queues
    ]
    path = f"{KUEUE}/namespaces/{namespace}/localqueues"
    await in_flight(len(plan.queues), lambda n: raw.must("POST", f"{KUEUE}/clusterqueues", cluster_queues[n]))
    await in_flight(len(plan.queues), lambda n: raw.must("POST", path, local_queues[n]))


def object_of(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    """One of Kueue's objects."""
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, **fields}


def _spec(queue: Any) -> dict[str, Any]:
    quota = {"name": "cpu", "nominalQuota": queue.nominal}
    if queue.borrowing_limit is not None:
        quota["borrowingLimit"] = queue.borrowing_limit
    group = {"coveredResources": ["cpu"], "flavors": [{"name": FLAVOR, "resources": [quota]}]}
    return {
        **({"cohortName": queue.cohort} if queue.cohort else {}),
        "namespaceSelector": {},
        "resourceGroups": [group],
        "preemption": {"reclaimWithinCohort": queue.reclaim, "withinClusterQueue": queue.within},
    }


async def api_writes(rig: Rig) -> Counter[str]:
    """Writes that the API server has answered so far, by verb, resource and subresource, from its own metrics."""
    found: Counter[str] = Counter()
    for match in _REQUESTS.finditer(await rig.metrics("kube-apiserver")):
        labels = dict(_LABEL.findall(match["labels"]))
        if labels["verb"] not in _READS:
            resource = labels["resource"] + (f"/{labels['subresource']}" if labels.get("subresource") else "")
            found[f"{labels['verb']} {resource} {labels['code']}"] += int(float(match["count"]))
    return found


class Costs:
    """CPU and memory of the processes of a rig, and of this one, from a moment on."""

    def __init__(self, rig: Rig, names: Iterable[str]) -> None:
        self._pids = {name: rig.component(name).pid for name in names if rig.component(name).running}
        self._pids["harness"] = os.getpid()
        self._began = {name: cpu_s(pid) for name, pid in self._pids.items()}
        self.samples: dict[str, list[float]] = {name: [] for name in self._pids}

    def sample(self) -> None:
        """Note how much memory each holds now."""
        for name, pid in self._pids.items():
            self.samples[name].append(round(rss_mb(pid), 1))

    def figures(self) -> dict[str, Figures]:
        """CPU seconds since the beginning, and the most memory, of each."""
        return {
            name: {"cpu_s": round(cpu_s(pid) - self._began[name], 2), "rss_mb_max": round(rss_mb(pid, peak=True), 1)}
            for name, pid in self._pids.items()
        }
