"""What grows with the cluster: ``python -m tests.bench growth [--json FILE] [--plot FILE.png]``.

From the middle (10,000 pods that wait, 300 ClusterQueues, 1,000 nodes) one number at a time is varied. Each state is a
process of its own, which takes it in from recorded objects as at a start (``_grown``); no API server takes part. All
times are CPU times.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench._machine import Figures, Machine

AXES = {
    "pending": (1_000, 10_000, 100_000),
    "queues": (30, 300, 1_000),
    "nodes": (100, 1_000, 5_000),
}
MIDDLE = {"pending": 10_000, "queues": 300, "nodes": 1_000}
SHOWN = ("pass_ms", "state_mb", "restart_s", "filter_p99_ms")
POINT_S_MAX = 600.0


def points() -> list[dict[str, int]]:
    """Every state once."""
    found: list[dict[str, int]] = []
    for axis, sizes in AXES.items():
        for size in sizes:
            point = {**MIDDLE, axis: size}
            if point not in found:
                found.append(point)
    return found


def measure(point: dict[str, int]) -> Figures:
    """One state, in a process of its own."""
    sizes = [str(point[axis]) for axis in AXES]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.bench._grown", *sizes],
        stdout=subprocess.PIPE,
        check=True,
        timeout=POINT_S_MAX,
    )
    found: Figures = json.loads(ran.stdout.splitlines()[-1])
    return found


def show(rows: list[Figures], console: Console) -> None:
    """The table."""
    table = Table(*rows[0], title="CPU ms a pass, MB, CPU s of a restart, CPU ms an answer")
    for row in rows:
        table.add_row(*(f"{value:,}" for value in row.values()))
    console.print(table)


def plot(rows: list[Figures], path: Path) -> None:
    """Each figure along each axis, as a PNG."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(
        len(SHOWN), len(AXES), sharex="col", sharey="row", figsize=(9, 9), layout="constrained"
    )
    for column, axis in enumerate(AXES):
        along = sorted(
            (row for row in rows if all(row[other] == MIDDLE[other] for other in AXES if other != axis)),
            key=lambda row: row[axis],
        )
        for line, name in enumerate(SHOWN):
            axes = grid[line][column]
            axes.plot([row[axis] for row in along], [row[name] for row in along], marker="o")
            axes.set_xscale("log")
            if column == 0:
                axes.set_ylabel(name)
        grid[-1][column].set_xlabel(axis)
    for line in grid:
        line[0].set_ylim(bottom=0, top=1.1 * max(axes.dataLim.ymax for axes in line))
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main(argv: list[str]) -> int:
    """Measure, print, and write JSON and a plot if asked to."""
    options = argparse.ArgumentParser(prog="python -m tests.bench growth", description=__doc__)
    options.add_argument("--json", type=Path)
    options.add_argument("--plot", type=Path)
    asked = options.parse_args(argv)
    rows = []
    with Machine() as machine:
        for point in points():
            rows.append(measure(point))
            print(rows[-1], flush=True)
    show(rows, Console(width=max(140, Console().width)))
    print(machine.load)
    if asked.json:
        asked.json.write_text(json.dumps({"rows": rows, "machine_load": machine.load}, indent=1) + "\n")
    if asked.plot:
        plot(rows, asked.plot)
    return 0
