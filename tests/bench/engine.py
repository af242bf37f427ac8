"""What decisions cost: ``python -m tests.bench engine [--json FILE] [--only NAME]``.

Engine seconds are CPU seconds inside ``apply`` and ``run_pass`` of one process on one core, garbage collection included
and tuned as in production. Virtual seconds are those of a simulated cluster in which a decision takes no time.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from extender.collector import quiet_the_collector
from extender.model.policy import DEFAULT_STRATEGIES, Policy
from extender.model.quota import PreemptionPolicy
from tests.bench._load import Lab, workload
from tests.bench._virtual import BASELINE, LARGE_SCALE, Outcome, replay

Row = dict[str, float | int | str]
CLASSICAL = Policy()
FAIR = Policy(fair_sharing=DEFAULT_STRATEGIES)


def plain_path() -> list[Row]:
    """Workloads that fit: how many are admitted a second, in passes of one, of some, and of many."""
    rows: list[Row] = []
    for queues in (30, 300, 1_000, 3_000):
        lab = Lab(CLASSICAL)
        lab.flat_cohorts(queues, per_cohort=min(queues, 30), nominal=1_000_000)
        count = 30_000
        arrivals = [workload(n, queue=n % queues, cpu=1) for n in range(count)]
        apply_s = lab.tell(arrivals)
        pass_s, effects = lab.run_pass()
        confirm_s = lab.confirm(effects)
        assert len(effects) == count, f"{len(effects)} of {count} admitted"
        rows.append(
            {
                "what": "admit what fits, one pass",
                "cluster queues": queues,
                "workloads": count,
                "pass s": round(pass_s, 3),
                "admissions/s (pass)": round(count / pass_s),
                "admissions/s (seen, decided, confirmed)": round(count / (apply_s + pass_s + confirm_s)),
            }
        )
    return rows


def one_queue() -> list[Row]:
    """A queue with 536 workloads that fit is drained in one pass."""
    lab = Lab(CLASSICAL)
    lab.flat_cohorts(1, per_cohort=1, nominal=536)
    lab.tell([workload(n, queue=0, cpu=1) for n in range(536)])
    seconds, effects = lab.run_pass()
    return [{"what": "one queue, 536 fit, one pass", "admitted": len(effects), "ms": round(seconds * 1e3, 2)}]


def cycles() -> list[Row]:
    """One workload ends and its room is given to the next: what that costs, by queues and by pending workloads."""
    rows: list[Row] = []
    for queues in (30, 300, 1_000, 3_000):
        for pending in (100, 1_000, 10_000, 100_000):
            lab = Lab(CLASSICAL)
            lab.flat_cohorts(queues, per_cohort=30, nominal=1, within=PreemptionPolicy.LOWER_PRIORITY)
            lab.tell([workload(n, queue=n, cpu=1, priority=9) for n in range(queues)])
            lab.confirm(lab.run_pass()[1])
            lab.tell([workload(10**6 + n, queue=n % queues, cpu=1, priority=n % 5) for n in range(pending)])
            settle_s = lab.run_pass()[0]
            rounds = min(pending, queues, 100)
            cost_s = sum(_turn_over(lab, n) for n in range(rounds))
            rows.append(
                {
                    "what": "one ends, the next gets in",
                    "cluster queues": queues,
                    "pending": pending,
                    "first pass ms": round(settle_s * 1e3, 2),
                    "ms each": round(cost_s / rounds * 1e3, 3),
                    "decisions/s": round(rounds / cost_s),
                }
            )
    return rows


def _turn_over(lab: Lab, n: int) -> float:
    gone_s = lab.gone(workload(n, queue=n, cpu=1, priority=9).uid)
    pass_s, effects = lab.run_pass()
    assert len(effects) == 1, f"{len(effects)} decisions after one workload ended"
    return gone_s + pass_s


def shapes() -> list[Row]:
    """100,000 pending workloads of 50 shapes cost no more a pass than 50 do."""
    rows: list[Row] = []
    for pending in (50, 100_000):
        lab = Lab(CLASSICAL)
        lab.flat_cohorts(1, per_cohort=1, nominal=100)
        lab.tell([workload(0, queue=0, cpu=100, priority=9)])
        lab.confirm(lab.run_pass()[1])
        lab.tell([workload(1 + n, queue=0, cpu=2 + n % 50) for n in range(pending)])
        lab.run_pass()
        costs = []
        for quota in range(20):
            # The quota is raised by too little for anybody, so every shape is tried again and none gets in.
            lab.set_nominal(0, 100 + quota % 2)
            seconds, effects = lab.run_pass()
            assert not effects, "nothing fits"
            costs.append(seconds)
        rows.append({"what": "all tried again in vain, 50 shapes", "pending": pending, "ms": _median_ms(costs)})
    return rows


def preemption() -> list[Row]:
    """The worst search: 2,000 nodes in three levels, 700 candidates, all of them needed."""
    rows: list[Row] = []
    for name, policy in (("classical", CLASSICAL), ("fair", FAIR)):
        costs, victims = [], 0
        for _ in range(3):
            lab = Lab(policy)
            lab.three_levels(nodes=2_000, borrowers=700)
            lab.tell([workload(10**6, queue=0, cpu=700, priority=5)])
            seconds, effects = lab.run_pass()
            victims = len(effects)
            costs.append(seconds)
        rows.append({"what": f"worst search, {name}", "victims": victims, "ms": _median_ms(costs)})
        lab = Lab(policy)
        lab.three_levels(nodes=2_000, borrowers=700)
        lab.tell([workload(10**6, queue=1, cpu=1_500, priority=5)])
        seconds, effects = lab.run_pass()
        rows.append({"what": f"search in vain, {name}", "victims": len(effects), "ms": round(seconds * 1e3, 2)})
    return rows


def generators() -> list[Row]:
    """The reference's two scalability generators in virtual time."""
    return [_row("baseline", replay(BASELINE, CLASSICAL)), _row("large-scale", replay(LARGE_SCALE, CLASSICAL))]


def _row(name: str, outcome: Outcome) -> Row:
    waits = {f"wait s {kind}": round(wait_s, 1) for kind, wait_s in outcome.wait_s.items()}
    return {
        "what": f"generator {name}",
        "workloads": outcome.workloads,
        "virtual s": round(outcome.virtual_s, 1),
        "quota used %": round(outcome.used * 100, 1),
        "of it wasted %": round(outcome.wasted * 100, 1),
        "engine s": round(outcome.engine_s, 2),
        "passes": outcome.passes,
        "evictions": outcome.evictions,
        **waits,
    }


def _median_ms(seconds: list[float]) -> float:
    return round(sorted(seconds)[len(seconds) // 2] * 1e3, 3)


PARTS: dict[str, Callable[[], list[Row]]] = {
    "plain": plain_path,
    "one-queue": one_queue,
    "cycles": cycles,
    "shapes": shapes,
    "preemption": preemption,
    "generators": generators,
}


def keys(rows: list[Row]) -> dict[str, float]:
    """The figures by which the targets are judged, as far as their parts were run."""
    found: dict[str, float] = {}
    for row in rows:
        what = str(row["what"])
        if what.startswith("admit what fits"):
            rate = float(row["admissions/s (seen, decided, confirmed)"])
            found["admissions_per_s"] = min(found.get("admissions_per_s", rate), rate)
        elif "search" in what:
            found["worst_preemption_ms"] = max(found.get("worst_preemption_ms", 0.0), float(row["ms"]))
        elif what == "generator baseline":
            found["baseline_virtual_s"] = float(row["virtual s"])
            found["baseline_used_percent"] = float(row["quota used %"])
        elif what == "generator large-scale":
            found["large_scale_engine_s"] = float(row["engine s"])
    return found


def show(rows: list[Row], console: Console) -> None:
    """One table for each kind of row."""
    kinds: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        kinds.setdefault(tuple(row), []).append(row)
    for columns, alike in kinds.items():
        table = Table()
        for column in columns:
            table.add_column(column, justify="left" if column == "what" else "right")
        for row in alike:
            table.add_row(*(f"{row[column]:,}" if column != "what" else str(row[column]) for column in columns))
        console.print(table)


def main(argv: list[str]) -> int:
    """Run the parts asked for, print their tables, and write all figures to a file if one is named."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench engine", description=__doc__)
    parser.add_argument("--json", type=Path, help="also write keys and rows to this file")
    parser.add_argument("--only", choices=PARTS, action="append", help="run this part only (may be repeated)")
    asked = parser.parse_args(argv)
    quiet_the_collector()
    console = Console(width=max(140, Console().width))
    rows: list[Row] = []
    started = time.perf_counter()
    for name in asked.only or PARTS:
        found = PARTS[name]()
        show(found, console)
        rows += found
    figures = keys(rows)
    console.print(figures)
    console.print(f"{time.perf_counter() - started:.1f} s in all")
    if asked.json is not None:
        asked.json.write_text(json.dumps({**figures, "rows": rows}, indent=1) + "\n")
    return 0
