"""An hour of churn with faults: ``python -m tests.bench soak --minutes 60 --rate 50 --json FILE``.

Gated pods come through the real webhook, run a second or two and go, some in groups, some pushing others away, while
connections are cut, the API server and replicas are killed, quotas edited and nodes taken away. Asked is whether memory
stays flat, whether anything is stuck in the end, and whether what must always hold ever did not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console
from rich.table import Table

from tests.bench._churn import FILL, KINDS, NAMESPACE, Churn, cores_needed, queue_names
from tests.bench._floor import create_namespace
from tests.bench._machine import Figures, Machine, cpu_s, rss_mb
from tests.bench._plan import Arrival, Class, Plan, Queue
from tests.bench._raw import Raw
from tests.bench._service import create_queues
from tests.bench._trouble import POOL, Soaked, Trouble
from tests.rig import Rig

COHORTS, QUEUES = 4, 3
SAMPLE_S = 10.0
WARM_UP = 0.25
"""The part of the run after which memory is compared."""
SPREAD_MAX = 0.05
SETTLE_S = 180.0
EMPTY_S = 60.0
"""How long the service may take to see that everything is gone."""
_METRIC = re.compile(r"^cohort_(?P<name>\w+?)(?:\{[^}]*\})? (?P<value>\S+)$", re.MULTILINE)
HOLDINGS = ("pending_workloads", "admitted_active_workloads", "cluster_queue_resource_usage")
Result = dict[str, Any]


def load(rate: float) -> Plan:
    """Queues for *rate* pods a second; its arrivals only name the classes."""
    nominal = math.ceil(cores_needed(rate) / FILL / (COHORTS * QUEUES))
    queues = [
        Queue(name, cohort, nominal, None, "Any", "LowerPriority") for name, cohort in queue_names(COHORTS, QUEUES)
    ]
    classes = [Class(kind.name, kind.cpu, kind.priority, kind.run_s) for kind in KINDS]
    return Plan("soak", queues, [Arrival(0, 0, kind) for kind in classes])


class Watched:
    """Samples of both replicas: memory in MB, and the figures of their metrics."""

    def __init__(self, lab: Soaked) -> None:
        self.memory: dict[str, list[tuple[float, float]]] = {}
        self.held_ms_max = self.violated = 0.0
        self.cpu_s: dict[str, float] = {}
        self._lab = lab
        self._began = time.monotonic()
        self._counted: dict[int, float] = {}

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            await self.sample()
            await asyncio.sleep(SAMPLE_S)

    async def sample(self) -> None:
        """One sample of each replica that runs. A restart begins a new series."""
        now_s = round(time.monotonic() - self._began, 1)
        for replica in self._lab.replicas:
            process = self._lab.process(replica)
            if not process.running:
                continue
            pid = process.pid
            self.memory.setdefault(f"{replica.name} ({pid})", []).append((now_s, round(rss_mb(pid), 2)))
            self.cpu_s[f"{replica.name} ({pid})"] = round(cpu_s(pid), 1)
            found = await self.metrics(replica.name)
            self.held_ms_max = max(self.held_ms_max, found.get("event_loop_held_seconds", 0.0) * 1e3)
            self._counted[pid] = found.get("invariant_violations_total", self._counted.get(pid, 0.0))
        self.violated = sum(self._counted.values())

    async def metrics(self, name: str) -> Figures:
        """The metrics of that replica, summed over their labels; none when it does not answer."""
        (replica,) = [one for one in self._lab.replicas if one.name == name]
        _, text = await self._lab.probe(replica, "/metrics")
        found: Figures = {}
        for match in _METRIC.finditer(text):
            found[match["name"]] = found.get(match["name"], 0.0) + float(match["value"])
        return found

    async def holds(self) -> Figures:
        """What the leader believes to wait or to be in use."""
        found = await self.metrics((await self._lab.leader()).name)
        return {name: found.get(name, 0.0) for name in HOLDINGS}


def spread(samples: Iterable[tuple[float, float]], *, from_s: float) -> Figures:
    """Of the samples from *from_s* on: the median, and how far from it, as a part of it, are those of each minute.

    An outage of seconds leaves a backlog, which takes memory while it lasts; how far single samples are is told, too.
    """
    values: list[float] = []
    minutes: dict[int, list[float]] = {}
    for at_s, value in samples:
        if at_s >= from_s:
            values.append(value)
            minutes.setdefault(int(at_s // 60), []).append(value)
    if len(values) < 2:
        return {}
    middle, medians = statistics.median(values), [statistics.median(minute) for minute in minutes.values()]
    return {
        "median_mb": round(middle, 1),
        "first_minute_mb": round(medians[0], 1),
        "last_minute_mb": round(medians[-1], 1),
        "spread": round(max(abs(value - middle) for value in medians) / middle, 4),
        "spread_of_samples": round(max(abs(value - middle) for value in values) / middle, 4),
    }


async def run(asked: argparse.Namespace) -> Result:
    """The hour."""
    seconds, plan = asked.minutes * 60, load(asked.rate)
    async with Rig(nodes=(POOL,), scheduler=False) as rig, Raw(rig.server, rig._tls) as raw:
        await create_namespace(rig, NAMESPACE)
        lab = Soaked(rig, overlay=asked.overlay)
        try:
            await lab.open()
            await create_queues(raw, plan, namespace=NAMESPACE)
            await lab.leader()
            return await _soak(lab, raw, plan, asked, seconds)
        finally:
            await lab.close()


async def _soak(lab: Soaked, raw: Raw, plan: Plan, asked: argparse.Namespace, seconds: float) -> Result:
    cohort_of = {queue.name: queue.cohort for queue in plan.queues}
    quota = dict.fromkeys(cohort_of.values(), QUEUES * plan.queues[0].nominal)
    churn = Churn(raw, rate=asked.rate, cohort_of=cohort_of, quota=quota, seed=asked.seed)
    watched, trouble = Watched(lab), Trouble(lab, churn, plan.queues)
    churn.start()
    others = [watched.run(), _report(churn, watched)] + ([trouble.run(seconds)] if asked.faults else [])
    tasks = [asyncio.create_task(other) for other in others]
    try:
        began = time.monotonic()
        await churn.run(seconds)
        ran_s, created = time.monotonic() - began, churn.counts["created"]
        for task in tasks[2:]:
            task.cancel()  # it is healed when it is cancelled
        await asyncio.gather(*tasks[2:], return_exceptions=True)
        stuck = await churn.settle(SETTLE_S)
        settled_s = time.monotonic() - began - ran_s
        said = {name: await _what_it_says(lab, name) for name in stuck[:20]}
        left = await _left(watched)
        await watched.sample()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await churn.stop()
    series = {name: spread(samples, from_s=WARM_UP * seconds) for name, samples in watched.memory.items()}
    return {
        "minutes": asked.minutes,
        "rate": asked.rate,
        "rate_achieved": round(created / ran_s, 2),
        "pods": churn.counts["created"],
        "counts": dict(sorted(churn.counts.items())),
        "settled_s": round(settled_s, 1),
        "stuck": len(stuck),
        "stuck_pods": said,
        "left_in_service": left,
        "violations": churn.violations[:20],
        "violations_count": len(churn.violations),
        "invariant_violations": watched.violated,
        "held_ms_max": round(watched.held_ms_max, 1),
        "memory": {name: found for name, found in series.items() if found},
        "flat": all(found["spread"] <= SPREAD_MAX for found in series.values() if found),
        "cpu_s": watched.cpu_s,
        "faults": trouble.log,
        "samples": watched.memory,
    }


async def _left(watched: Watched) -> Figures:
    """What the leader still believes to be there, once it has had time to see that nothing is."""
    deadline_s = time.monotonic() + EMPTY_S
    while True:
        found = await watched.holds()
        if not any(found.values()) or time.monotonic() > deadline_s:
            return found
        await asyncio.sleep(1)


async def _what_it_says(lab: Soaked, name: str) -> str:
    found = [pod for pod in await lab.pods(NAMESPACE) if pod["metadata"]["name"] == name]
    return json.dumps(found[0]["status"].get("conditions", [])) if found else "does not exist"


async def _report(churn: Churn, watched: Watched) -> None:
    while True:
        await asyncio.sleep(SAMPLE_S)
        memory = ", ".join(f"{name} {samples[-1][1]:.0f} MB" for name, samples in list(watched.memory.items())[-2:])
        print(f"{time.monotonic() - watched._began:5.0f} s: {churn.progress}; {memory}", flush=True)


def show(found: Result, console: Console) -> None:
    """The tables for people."""
    table = Table("s", "what was done", title="faults")
    for at_s, what in found["faults"]:
        table.add_row(f"{at_s:.0f}", what)
    console.print(table)
    table = Table("process", *next(iter(found["memory"].values()), {}), title="memory after the warm-up")
    for name, row in found["memory"].items():
        table.add_row(name, *map(str, row.values()))
    console.print(table)
    console.print({key: value for key, value in found.items() if key not in ("faults", "memory", "samples")})


def plot(found: Result, path: Path) -> None:
    """Memory over time, as a PNG."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4), layout="constrained")
    for name, samples in found["samples"].items():
        axes.plot([at_s / 60 for at_s, _ in samples], [mb for _, mb in samples], label=name)
    for at_s, _ in found["faults"]:
        axes.axvline(at_s / 60, color="lightgrey", linewidth=0.5)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("minutes")
    axes.set_ylabel("memory, MB")
    axes.set_title(f"{found['pods']:,} pods at {found['rate_achieved']:g} a second")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main(argv: list[str]) -> int:
    """Run, print, and write JSON and a plot if asked to. Fails if anything was stuck or wrong, or if memory grew."""
    options = argparse.ArgumentParser(prog="python -m tests.bench soak", description=__doc__)
    options.add_argument("--minutes", type=float, default=60.0)
    options.add_argument("--rate", type=float, default=50.0, metavar="N", help="pods a second")
    options.add_argument("--overlay", choices=("default", "base"), default="base", help="base: marked by the webhook")
    options.add_argument("--no-faults", dest="faults", action="store_false")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--json", type=Path)
    options.add_argument("--plot", type=Path)
    asked = options.parse_args(argv)
    with Machine() as machine:
        found = uvloop.run(run(asked))
    found["machine_load"] = machine.load
    show(found, Console())
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")
    if asked.plot:
        plot(found, asked.plot)
    sound = not (found["stuck"] or found["violations_count"] or found["invariant_violations"])
    return 0 if sound and found["flat"] and not any(found["left_in_service"].values()) else 1
