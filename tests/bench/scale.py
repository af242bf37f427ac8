"""The reference's scalability test on a real API server: ``python -m tests.bench scale --generator baseline``.

The shipped service, installed as its manifests say, admits one gated pod per workload; the harness submits at the
generator's pace and plays scheduler and kubelets (``--scheduler``: real kube-scheduler, simulated nodes). Beside the
result stands the floor, measured in the same run with raw requests: what the API server can do on this machine at all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console
from rich.table import Table

from tests.bench import _floor
from tests.bench._machine import Machine, quantile
from tests.bench._plan import Plan, plan
from tests.bench._player import NAMESPACE, Log, Player
from tests.bench._raw import Raw
from tests.bench._service import Costs, api_writes, create_queues, dump, install, until_leading
from tests.rig import NodePool, Rig

GOALS = {
    "baseline": {"wall_s": 100.0, "quota_use": 0.75, "large_mean_s": 5.0, "writes_per_workload": 1.1},
    "large-scale": {"wall_s": 400.0, "writes_per_workload": 1.1},
}
PROCESSES = ("kube-apiserver", "etcd", "cohort-extender-0", "kube-controller-manager", "kwok", "kube-scheduler")
TIMEOUT_S = 1800.0
REPORT_S = 10.0
Result = dict[str, Any]


def nodes_of(load: Plan) -> tuple[NodePool, ...]:
    """One node for each queue, half as large again as its quota: the scheduler is to place, not to wait for room."""
    cpu = max(queue.nominal for queue in load.queues) * 3 // 2
    return (NodePool("node", len(load.queues), capacity={"cpu": cpu, "pods": 1000}),)


async def run(load: Plan, asked: argparse.Namespace) -> Result:
    """One run on a rig of its own."""
    pools = nodes_of(load) if asked.scheduler else ()
    async with Rig(nodes=pools, scheduler=False) as rig, Raw(rig.server, rig._tls) as raw:
        floor = await _floor.measure(rig, raw, count=asked.floor_requests)
        settings = {} if asked.fair else {"fairSharing": None}
        installation = await install(rig, settings={**settings, "logLevel": "warning"}, overlay=asked.overlay)
        await _floor.create_namespace(rig, NAMESPACE)
        await create_queues(raw, load, namespace=NAMESPACE)
        if asked.scheduler:
            await rig.start_scheduler(await installation._scheduler_config())
        else:  # nothing for them to do here, as in the reference's own test
            await rig.component("kube-controller-manager").kill()
            await rig.component("kwok").kill()
        await until_leading(installation)
        costs, before = Costs(rig, [name for name in PROCESSES if name in rig.processes]), await api_writes(rig)
        player = Player(load, raw, finishes=not asked.scheduler)
        report = asyncio.create_task(_report(player, costs))
        try:
            log = await player.run(timeout_s=asked.timeout)
        finally:
            report.cancel()
        processes = costs.figures()
        ours, theirs = await dump(installation), await api_writes(rig) - before
        return {
            **result(load, log, ours, floor),
            "api_writes": dict(sorted(theirs.items())),
            "processes": processes,
            "memory_mb_by_second": costs.samples,
            "series": series(log),
        }


async def _report(player: Player, costs: Costs) -> None:
    began = said = time.monotonic()
    while True:
        await asyncio.sleep(1)
        costs.sample()
        now = time.monotonic()
        if now - said >= REPORT_S:
            print(f"{now - began:5.0f} s: {player.progress}", flush=True)
            said = now


def result(load: Plan, log: Log, ours: Result, floor: dict[str, float]) -> Result:
    """The figures of one run."""
    count, wall_s = len(log.lives), log.wall_s
    writes = Counter(ours["writes"]["sent_by_kind"])
    decisions = writes["UngatePod"] + writes["EvictPod"]
    waits: dict[str, list[float]] = {name: [] for name in load.classes}
    for life in log.lives:
        waits[life.arrival.kind.name].append((life.admitted_s or 0.0) - (life.created_s or 0.0))
    return {
        "generator": load.name,
        "workloads": count,
        "wall_s": round(wall_s, 1),
        "quota_use": round(log.used_core_s() / (load.nominal * wall_s), 3),
        "quota_useful": round(load.work_s / (load.nominal * wall_s), 3),
        "evictions": sum(life.evictions for life in log.lives),
        "submitted_late_s_max": round(log.late_s, 1),
        "admission_s": {
            name: {
                "mean": round(sum(values) / len(values), 2),
                "p50": round(quantile(values, 0.5), 2),
                "p99": round(quantile(values, 0.99), 2),
            }
            for name, values in waits.items()
        },
        "writes": dict(writes),
        "writes_per_workload": round(writes.total() / count, 3),
        "writes_per_decision": round(writes.total() / max(1, decisions), 3),
        "words_per_workload": round((writes.total() - decisions) / count, 3),
        "floor": floor,
        "floor_s": round(_floor.floor_s(floor, count), 1),
        "goals": GOALS.get(load.name, {}),
    }


def series(log: Log) -> dict[str, list[float]]:
    """Cores in use and workloads that wait, at each second."""
    seconds = int(log.wall_s) + 1
    cores, waiting = [0.0] * (seconds + 1), [0.0] * (seconds + 1)
    at = 0
    for second in range(seconds + 1):
        while at < len(log.used) and log.used[at][0] <= second:
            at += 1
        cores[second] = float(log.used[at - 1][1]) if at else 0.0
    for life in log.lives:
        for second in range(int(life.created_s or 0.0) + 1, int(life.admitted_s or 0.0) + 1):
            waiting[second] += 1
    return {"cores_used": cores, "waiting": waiting}


def show(found: Result, console: Console) -> None:
    """The tables for people."""
    table = Table("class", "mean s", "p50 s", "p99 s", title="time to admission")
    for name, row in found["admission_s"].items():
        table.add_row(name, *(str(row[key]) for key in ("mean", "p50", "p99")))
    console.print(table)
    table = Table("process", "CPU s", "most memory MB")
    for name, row in found["processes"].items():
        table.add_row(name, str(row["cpu_s"]), str(row["rss_mb_max"]))
    console.print(table)
    table = Table("our writes", "count")
    for name, count in sorted(found["writes"].items()):
        table.add_row(name, f"{count:,}")
    console.print(table)
    hidden = {"admission_s", "processes", "writes", "series", "memory_mb_by_second", "api_writes"}
    console.print({key: value for key, value in found.items() if key not in hidden})


def plot(found: Result, path: Path) -> None:
    """Cores in use and workloads waiting over time, as a PNG."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, sharex=True, figsize=(9, 6), layout="constrained")
    above.plot(found["series"]["cores_used"])
    above.axhline(found["quota_cores"], linestyle="--", color="grey")
    above.set_ylabel("cores admitted")
    above.set_title(f"{found['generator']}: {found['workloads']:,} workloads in {found['wall_s']:g} s")
    below.plot(found["series"]["waiting"], color="tab:orange")
    below.set_ylabel("workloads waiting")
    below.set_xlabel("seconds")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main(argv: list[str]) -> int:
    """Run, print, and write JSON and a plot if asked to."""
    options = argparse.ArgumentParser(prog="python -m tests.bench scale", description=__doc__)
    options.add_argument("--generator", default="baseline", help="baseline, large-scale, or a generator file")
    options.add_argument("--scale-down", type=int, default=1, metavar="N", help="an N-th of the workloads, same pace")
    options.add_argument("--scheduler", action="store_true", help="through kube-scheduler and simulated nodes")
    options.add_argument("--fair", action="store_true", help="with fair sharing; else classical, as in the reference")
    options.add_argument("--overlay", choices=("default", "base"), default="default", help="base: by the webhook alone")
    options.add_argument("--floor-requests", type=int, default=500, metavar="N", help="requests of each kind")
    options.add_argument("--timeout", type=float, default=TIMEOUT_S, metavar="S")
    options.add_argument("--json", type=Path)
    options.add_argument("--plot", type=Path)
    asked = options.parse_args(argv)
    load = plan(asked.generator, scale_down=asked.scale_down)
    with Machine() as machine:  # around the rig: what its processes used is ours once they have ended
        found = uvloop.run(run(load, asked))
    found |= {"quota_cores": load.nominal, "scale_down": asked.scale_down, "machine_load": machine.load}
    show(found, Console())
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")
    if asked.plot:
        plot(found, asked.plot)
    return 0
