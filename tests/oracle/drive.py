"""Drives the engine through a scenario by its front door, one cycle at a time, and writes down what the oracle does.

The world around it is the one of the case format, section 3: admissions are confirmed after a cycle, then everything
it preempted ends at once, and the clock is a second later.
"""

from typing import Any

import msgspec

from extender.engine.engine import Engine
from extender.model.events import WorkloadGone, WorkloadSeen
from extender.model.names import WorkloadUid
from extender.model.policy import Policy
from tests.oracle.cases import Json, facts, workload

CLOCK_S = 1_000_000
CYCLES_MAX = 200


def run(scenario: Json, policy: Policy) -> Json:
    """The result of *scenario* under *policy*, in the format of the cases, without what is only informative."""
    engine = Engine(policy)
    for event in facts(scenario):
        engine.apply(event)
    records = {short["name"]: workload(short) for short in scenario["workloads"]}
    cycles: list[Json] = []
    preempted: set[str] = set()
    while engine.has_work and len(cycles) < CYCLES_MAX:
        report = engine.cycle((CLOCK_S + len(cycles) + 1) * 1000)
        cycles.append(_cycle(engine, len(cycles) + 1, report))
        for uid in report.admitted:
            engine.apply(WorkloadSeen(msgspec.structs.replace(records[uid], admission=engine.admission_of(uid))))
        for uid, _, _ in report.preempted:
            preempted.add(uid)
            engine.apply(WorkloadGone(uid))
    return {"name": scenario["name"], "cycles": cycles, "final": _final(engine, scenario, preempted)}


def _cycle(engine: Engine, number: int, report: Any) -> Json:
    return {
        "cycle": number,
        "order": report.order,
        "heads": {
            uid: {
                "mode": head.mode,
                "borrows": head.borrows,
                "flavors": dict(head.flavors),
                "count": head.count,
                **({"drs": dict(head.shares)} if head.shares else {}),
            }
            for uid, head in report.heads.items()
        },
        "admitted": sorted((_admitted(engine, uid) for uid in report.admitted), key=lambda one: one["name"]),
        "preempted": sorted(
            ({"name": uid, "by": by, "reason": reason} for uid, by, reason in report.preempted),
            key=lambda one: one["name"],
        ),
        "pending": dict(report.pending),
    }


def _admitted(engine: Engine, uid: WorkloadUid) -> Json:
    flavors, count = _holds(engine, uid)
    return {"name": uid, "flavors": flavors, "count": count}


def _holds(engine: Engine, uid: WorkloadUid) -> tuple[dict[str, str], int]:
    admission = engine.admission_of(uid)
    assert admission is not None
    flavors = {resource: flavor for part in admission.assignments for resource, flavor in part.flavors}
    return flavors, sum(part.count for part in admission.assignments)


def _final(engine: Engine, scenario: Json, preempted: set[str]) -> Json:
    held = {
        short["name"]: _holds(engine, WorkloadUid(short["name"]))
        for short in scenario["workloads"]
        if engine.is_charged(WorkloadUid(short["name"]))
    }
    return {
        "admitted": {name: flavors for name, (flavors, _) in held.items()},
        "counts": {name: count for name, (_, count) in held.items()},
        "preempted": sorted(preempted),
        "pending": sorted(
            short["name"] for short in scenario["workloads"] if short["name"] not in held.keys() | preempted
        ),
    }
