"""A restart in a full cluster: ``python -m tests.bench restart [--pods 20000] [--json FILE]``.

The API server holds that many queued pods, a part of them admitted. The service is killed and started again: how long
until it is ready and until it leads, what that cost in CPU and memory, and for how long its event loop was held up. On
a busy machine the CPU seconds and the held time are the figures to trust.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import orjson
import uvloop
from rich.console import Console
from rich.table import Table

from tests.bench._floor import create_namespace, in_flight
from tests.bench._machine import Figures, Machine, cpu_s, rss_mb
from tests.bench._plan import Plan, Queue
from tests.bench._raw import Raw, queued_pod
from tests.bench._service import create_queues, dump, install, metrics, until_leading
from tests.e2e.installation import Installation
from tests.rig import Rig

QUEUES = 30
NAMESPACE = "load"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
GATE = {"name": "cohort-extender.io/admission"}
MANAGED = {"cohort-extender.io/managed": "true"}
MARKER = {"cohort-extender.io/queued-pod": "1"}
SETTLE_S = 5.0
GOALS = {"ready_s": 10.0, "rss_mb": 400.0, "held_ms_max": 5.0}
Result = dict[str, Any]


def load(*, pods: int, admitted: int) -> Plan:
    """Queues whose quota lets *admitted* pods of one core in."""
    queues = [Queue(f"cq-{n}", "all", admitted // QUEUES, None, "Never", "Never") for n in range(QUEUES)]
    assert pods >= admitted
    return Plan("restart", queues, [])


def pod(number: int) -> bytes:
    """A pod as the policy would have marked it, so that 20,000 can be created before the policy is there."""
    made = queued_pod(f"pod-{number:06}", queue=f"cq-{number % QUEUES}", cpu=1)
    made["metadata"]["labels"] |= MANAGED
    made["spec"]["schedulingGates"] = [GATE]
    resources = made["spec"]["containers"][0]["resources"]
    resources["requests"] |= MARKER
    resources["limits"] = MARKER
    return orjson.dumps(made)


async def run(asked: argparse.Namespace) -> Result:
    """Fill a cluster, then restart the service in it."""
    plan = load(pods=asked.pods, admitted=asked.admitted)
    async with Rig(scheduler=False) as rig, Raw(rig.server, rig._tls) as raw:
        await create_namespace(rig, NAMESPACE)
        began = time.monotonic()
        await in_flight(asked.pods, lambda n: raw.must("POST", PODS, pod(n)), width=32)
        print(f"{asked.pods} pods created in {time.monotonic() - began:.0f} s", flush=True)
        installation = await install(rig, settings={"logLevel": "warning"})
        for name in ("kube-controller-manager", "kwok"):  # their lists and watches are not the question
            await rig.component(name).kill()
        await create_queues(raw, plan, namespace=NAMESPACE)
        await until_leading(installation, timeout_s=120)
        await _until_admitted(installation, asked.admitted // QUEUES * QUEUES)
        rounds = [await _restart(installation) for _ in range(asked.restarts)]
    return {
        "pods": asked.pods,
        "admitted": asked.admitted,
        "ready_s": min(one["ready_s"] for one in rounds),
        "ready_cpu_s": min(one["ready_cpu_s"] for one in rounds),
        "rss_mb": max(one["rss_mb"] for one in rounds),
        "held_ms_max": min(max(one["held_ms_start"], one["held_ms_leading"]) for one in rounds),
        "rounds": rounds,
        "goals": GOALS,
    }


async def _until_admitted(installation: Installation, count: int, *, timeout_s: float = 300.0) -> None:
    """Wait until quota is used up and the writes have ended."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        said = await dump(installation)
        written = said["writes"]["outcomes"].get("done", 0)
        if said["writes"]["sent_by_kind"].get("UngatePod", 0) >= count and written >= count:
            return
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{written} of {count} admissions written after {timeout_s:g} s")
        await asyncio.sleep(0.5)


async def _restart(installation: Installation) -> Figures:
    service = installation.service
    await service.kill()
    began = time.monotonic()
    await service.start()
    ready_s = time.monotonic() - began
    found = {"ready_s": round(ready_s, 2), "ready_cpu_s": round(cpu_s(service.pid), 2)}
    found |= {f"{key}_start": value for key, value in _held(await metrics(installation)).items()}
    await until_leading(installation, timeout_s=60)  # the lease of the one that was killed must run out first
    found["leads_s"] = round(time.monotonic() - began, 2)
    await asyncio.sleep(SETTLE_S)
    found |= {f"{key}_leading": value for key, value in _held(await metrics(installation)).items()}
    return {**found, "rss_mb": round(rss_mb(service.pid), 1), "rss_mb_peak": round(rss_mb(service.pid, peak=True), 1)}


def _held(text: str) -> Figures:
    """The watchdog's figures since the last scrape, in ms."""
    found = dict(re.findall(r"^cohort_event_loop_(\w+)_seconds (\S+)$", text, re.MULTILINE))
    return {f"{key}_ms": round(float(value) * 1e3, 2) for key, value in found.items()}


def show(found: Result, console: Console) -> None:
    """The table."""
    table = Table(*found["rounds"][0], title=f"restart with {found['pods']:,} pods")
    for one in found["rounds"]:
        table.add_row(*map(str, one.values()))
    console.print(table)
    console.print({key: value for key, value in found.items() if key != "rounds"})


def main(argv: list[str]) -> int:
    """Measure, print, and write JSON if asked to."""
    options = argparse.ArgumentParser(prog="python -m tests.bench restart", description=__doc__)
    options.add_argument("--pods", type=int, default=20_000)
    options.add_argument("--admitted", type=int, default=6_000, help="how many of them hold quota")
    options.add_argument("--restarts", type=int, default=3)
    options.add_argument("--json", type=Path)
    asked = options.parse_args(argv)
    with Machine() as machine:
        found = uvloop.run(run(asked))
    found["machine_load"] = machine.load
    show(found, Console())
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0
