"""Jobs on a real API server: writes for a Job of many pods, and how fast many waiting Jobs are admitted.

``python -m tests.bench jobs --json FILE [--pods 1000] [--jobs 1000]``. Writes are counted by the API server itself. The
rate is from the moment the queue opens to the moment the last Job shows its admission, without a scheduler; once with
the Job controller paused (our part and the API server's), once with it at work on the same two cores. Beside the rate
stands who used the CPU meanwhile, each process by its own clock, and what else the machine had to do.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson

from tests.bench._machine import Machine, cpu_s
from tests.jobs.lab import EVICTED, JOBS, POOLS, Lab, annotation, is_admitted, job, opened
from tests.rig import NodePool

GOAL_JOBS_PER_S = 150
_COUNT = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<count>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_POOLS = tuple(
    NodePool(pool.name, 1, pool.labels, capacity={"example.com/gpu": 100_000, "pods": 100_000}) for pool in POOLS
)


async def patches(lab: Lab) -> dict[str, int]:
    """PATCH requests on Jobs and pods so far, by resource and subresource: nobody but us sends them here."""
    found: dict[str, int] = {}
    for match in _COUNT.finditer(await lab.rig.metrics("kube-apiserver")):
        labels = dict(_LABEL.findall(match["labels"]))
        if labels.get("verb") == "PATCH" and labels.get("resource") in ("jobs", "pods"):
            key = "/".join(part for part in (labels["resource"], labels.get("subresource", "")) if part)
            found[key] = found.get(key, 0) + int(float(match["count"]))
    return found


def less(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    """What came in between."""
    return {key: count - before.get(key, 0) for key, count in after.items() if count != before.get(key, 0)}


async def big_job(lab: Lab, pods: int) -> dict[str, Any]:
    """One Job of *pods* pods: admitted, its pods made, evicted, its pods gone."""
    start = await patches(lab)
    began = time.monotonic()
    await lab.submit(job("big", pods=pods))
    await lab.until_job("big", is_admitted, "admitted", timeout_s=60)
    admitted_s = time.monotonic() - began
    await lab.api.wait_for(JOBS, lambda found: found[0]["status"].get("active") == pods, what="pods", timeout_s=300)
    to_admit = less(await patches(lab), start)
    start = await patches(lab)
    began = time.monotonic()
    await lab.stop_queue("HoldAndDrain")
    await lab.until_job("big", lambda one: annotation(one, EVICTED), "evicted", timeout_s=60)
    evicted_s = time.monotonic() - began
    await lab.api.wait_for(JOBS, lambda found: not found[0]["status"].get("active"), what="stopped", timeout_s=300)
    await asyncio.sleep(2)
    to_evict = less(await patches(lab), start)
    return {
        "pods": pods,
        "writes_to_admit": to_admit,
        "writes_to_evict": to_evict,
        "created_to_admitted_s": round(admitted_s, 3),
        "drained_to_evicted_s": round(evicted_s, 3),
    }


async def many_jobs(lab: Lab, jobs: int, *, paused: bool) -> dict[str, Any]:
    """*jobs* waiting Jobs of one pod, admitted when their queue opens."""
    await lab.stop_queue("Hold")
    await asyncio.sleep(1)
    gate = asyncio.Semaphore(32)

    async def submit(number: int) -> None:
        async with gate:
            await lab.submit(job(f"small-{number}", pods=1))

    await asyncio.gather(*(submit(number) for number in range(jobs)))
    await lab.api.wait_for(
        JOBS,
        lambda found: (
            sum(any(c["type"] == "Suspended" for c in one["status"].get("conditions", ())) for one in found) == jobs
        ),
        what="all Jobs are known to their controller",
        timeout_s=300,
    )
    controller = lab.rig.component("kube-controller-manager")
    if paused:
        controller.pause()
    before = await patches(lab)
    seeing = asyncio.create_task(all_admitted(lab, jobs))
    await asyncio.sleep(1)
    used, began, machine = used_s(lab), time.monotonic(), Machine()
    try:
        with machine:
            await lab.stop_queue("None")
            await seeing
        took_s = time.monotonic() - began
    finally:
        if paused:
            controller.resume()
    cpu = {name: round(now_s - used[name], 2) for name, now_s in used_s(lab).items()}
    writes = less(await patches(lab), before)
    total_s = sum(cpu.values())
    costs = {"cpu_ms_per_job": round(1000 * total_s / jobs, 2), "cores_got": round(total_s / took_s, 2)}
    rate = round(jobs / took_s, 1)
    return {
        "jobs": jobs,
        "seconds": round(took_s, 2),
        "jobs_per_s": rate,
        "cpu_s": cpu,
        **costs,
        "load": machine.load,
        "writes": writes,
    }


async def all_admitted(lab: Lab, jobs: int) -> None:
    """Wait until a watch has shown that many admitted Jobs. It looks at each event once: a watcher that counts all Jobs
    at each of them would take a part of the very cores that are measured."""
    seen: set[str] = set()
    version = (await lab.api.get(JOBS, limit="1"))["metadata"]["resourceVersion"]
    async with asyncio.timeout(300):
        async for _, found in lab.api.watch(JOBS, resource_version=version, timeout_s=300):
            if "spec" in found and is_admitted(found):
                seen.add(found["metadata"]["name"])
            if len(seen) == jobs:
                return


def used_s(lab: Lab) -> dict[str, float]:
    """The CPU time that each process of the rig has used, and this one."""
    found = {name: cpu_s(process.pid) for name, process in lab.rig.processes.items() if process.running}
    return {**found, "this benchmark": time.process_time()}


async def measure(pods: int, jobs: int) -> dict[str, Any]:
    """All figures, each on a control plane of its own."""
    parts: dict[str, Callable[[Lab], Awaitable[dict[str, Any]]]] = {
        "big_job": lambda lab: big_job(lab, pods),
        "many_jobs_controller_paused": lambda lab: many_jobs(lab, jobs, paused=True),
        "many_jobs": lambda lab: many_jobs(lab, jobs, paused=False),
    }
    found: dict[str, Any] = {"goal_jobs_per_s": GOAL_JOBS_PER_S}
    for name, part in parts.items():
        async with opened(pools=_POOLS) as lab:
            await lab.quota(blue=100_000)
            await lab.rig.component("kube-scheduler").kill()
            found[name] = await part(lab)
            print(name, found[name], flush=True)
    return found


def main(argv: list[str]) -> int:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench jobs")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1000)
    asked = parser.parse_args(argv)
    found = asyncio.run(measure(asked.pods, asked.jobs))
    text = orjson.dumps(found, option=orjson.OPT_INDENT_2)
    print(text.decode())
    if asked.json:
        asked.json.write_bytes(text)
    return 0
