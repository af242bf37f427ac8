"""kube-scheduler with and without the extender: ``python -m tests.bench scheduler [--nodes N] [--pods N]``.

In every round the same pods are queued, admitted by the service (spread over four flavors) and so ungated while no
scheduler runs; then kube-scheduler starts, and what is measured is the time from its first binding to its last. Rounds
with the extender (the shipped scheduler configuration) and without it (a stock one) alternate: with, without, without,
with. Kubelets and controllers are stopped, so that binding is all that the API server has to do.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import time
from pathlib import Path
from typing import Any

import orjson
import uvloop
from rich.console import Console
from rich.table import Table

from tests.bench._floor import create_namespace, in_flight
from tests.bench._machine import Figures, Machine, cpu_s
from tests.bench._raw import Raw, queued_pod
from tests.bench._service import KUEUE, install, object_of, until_leading
from tests.e2e.installation import Installation
from tests.rig import NodePool, Rig

FLAVORS = 4
NAMESPACE = "load"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
LABEL = "bench.cohort-extender.io/pool"
MARKER = "cohort-extender.io/queued-pod"
GOAL = 0.9
ROUND_S_MAX = 600.0
PARTS = ("kube-scheduler", "kube-apiserver", "etcd", "cohort-extender-0")
Result = dict[str, Any]

STOCK: Result = {
    # Pods carry the marker, which no node offers. A scheduler that was not told of us would find no room for them.
    "profiles": [
        {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResources": [MARKER]}}]},
    ]
}


def pools(nodes: int, pods: int) -> tuple[NodePool, ...]:
    """A pool a flavor, with twice the room that its pods need."""
    each = max(1, nodes // FLAVORS)
    room = str(max(8, 2 * pods // (each * FLAVORS) + 2))
    return tuple(
        NodePool(f"pool-{n}", each, {LABEL: f"pool-{n}"}, capacity={"cpu": room, "pods": room}) for n in range(FLAVORS)
    )


async def create_queue(raw: Raw, pods: int) -> None:
    """One ClusterQueue with as many cores of each flavor as a fourth of the pods needs."""
    for n in range(FLAVORS):
        spec = {"nodeLabels": {LABEL: f"pool-{n}"}}
        await raw.must(
            "POST", f"{KUEUE}/resourceflavors", orjson.dumps(object_of("ResourceFlavor", f"f{n}", spec=spec))
        )
    flavors = [
        {"name": f"f{n}", "resources": [{"name": "cpu", "nominalQuota": -(-pods // FLAVORS)}]} for n in range(FLAVORS)
    ]
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}
    await raw.must("POST", f"{KUEUE}/clusterqueues", orjson.dumps(object_of("ClusterQueue", "cq", spec=spec)))
    local = object_of("LocalQueue", "queue", spec={"clusterQueue": "cq"})
    await raw.must("POST", f"{KUEUE}/namespaces/{NAMESPACE}/localqueues", orjson.dumps(local))


async def prepare(rig: Rig, raw: Raw, count: int) -> str:
    """All pods created and admitted; the version of the collection then."""
    version = await raw.version(PODS)
    bodies = [orjson.dumps(queued_pod(f"pod-{n:05}", queue="queue", cpu=1)) for n in range(count)]
    creating = asyncio.create_task(in_flight(count, lambda n: raw.must("POST", PODS, bodies[n])))
    waiting = set(range(count))
    async with asyncio.timeout(ROUND_S_MAX), contextlib.aclosing(raw.watch(PODS, version)) as changes:
        async for _, pod in changes:
            if not pod.gated:
                waiting.discard(int(pod.metadata.name.rpartition("-")[2]))
                if not waiting:
                    break
    await creating
    return await raw.version(PODS)


async def schedule(rig: Rig, raw: Raw, config: str | Result, count: int, version: str) -> Figures:
    """Start the scheduler and see every pod bound."""
    before = {part: cpu_s(rig.component(part).pid) for part in PARTS[1:]}
    bound: dict[str, float] = {}
    starting = asyncio.create_task(rig.start_scheduler(config))
    async with asyncio.timeout(ROUND_S_MAX), contextlib.aclosing(raw.watch(PODS, version)) as changes:
        async for _, pod in changes:
            if pod.spec.node_name and pod.metadata.name not in bound:
                bound[pod.metadata.name] = time.monotonic()
                if len(bound) == count:
                    break
    await starting
    times = sorted(bound.values())
    seconds = times[-1] - times[0]
    used = {f"{part}_cpu_s": round(cpu_s(rig.component(part).pid) - before.get(part, 0.0), 2) for part in PARTS}
    await rig.component("kube-scheduler").kill()
    return {"bind_s": round(seconds, 2), "pods_per_s": round((count - 1) / seconds, 1), **used}


async def clear(raw: Raw, count: int) -> None:
    """Every pod gone, at once: there is no kubelet to wait for."""
    now = orjson.dumps({"gracePeriodSeconds": 0})
    await in_flight(count, lambda n: raw.must("DELETE", f"{PODS}/pod-{n:05}", now))


async def run(asked: argparse.Namespace) -> Result:
    """Rounds in turn on one rig."""
    async with (
        Rig(nodes=pools(asked.nodes, asked.pods), scheduler=False) as rig,
        Raw(rig.server, rig._tls) as raw,
    ):
        await create_namespace(rig, NAMESPACE)
        installation: Installation = await install(rig, settings={"logLevel": "warning"})
        ours = await installation._scheduler_config()
        for name in ("kube-controller-manager", "kwok"):
            await rig.component(name).kill()
        await create_queue(raw, asked.pods)
        await until_leading(installation)
        rounds: list[Result] = []
        for turn in range(asked.rounds):
            for extender in (True, False) if turn % 2 == 0 else (False, True):
                version = await prepare(rig, raw, asked.pods)
                found = await schedule(rig, raw, ours if extender else STOCK, asked.pods, version)
                rounds.append({"round": turn, "extender": extender, **found})
                print(rounds[-1], flush=True)
                await clear(raw, asked.pods)
    return {**ratio(rounds), "nodes": asked.nodes, "pods": asked.pods, "rounds": rounds}


def ratio(rounds: list[Result]) -> Result:
    """Throughput with the extender by that without, the median of the rounds' pairs."""
    pairs: dict[int, dict[bool, float]] = {}
    for one in rounds:
        pairs.setdefault(one["round"], {})[one["extender"]] = one["pods_per_s"]
    ratios = [pair[True] / pair[False] for pair in pairs.values()]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(value, 3) for value in ratios],
        "pods_per_s_with": round(statistics.median(pair[True] for pair in pairs.values()), 1),
        "pods_per_s_without": round(statistics.median(pair[False] for pair in pairs.values()), 1),
        "goals": {"ratio": GOAL},
    }


def show(found: Result, console: Console) -> None:
    """The table."""
    table = Table(*found["rounds"][0])
    for one in found["rounds"]:
        table.add_row(*map(str, one.values()))
    console.print(table)
    console.print({key: value for key, value in found.items() if key != "rounds"})


def main(argv: list[str]) -> int:
    """Measure, print, and write JSON if asked to."""
    options = argparse.ArgumentParser(prog="python -m tests.bench scheduler", description=__doc__)
    options.add_argument("--nodes", type=int, default=1_000)
    options.add_argument("--pods", type=int, default=5_000)
    options.add_argument("--rounds", type=int, default=2, help="pairs of rounds")
    options.add_argument("--json", type=Path)
    asked = options.parse_args(argv)
    with Machine() as machine:
        found = uvloop.run(run(asked))
    found["machine_load"] = machine.load
    show(found, Console())
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0
