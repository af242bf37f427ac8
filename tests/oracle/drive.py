"""Drives the engine through a scenario by its front door, one cycle at a time, and writes down what the oracle does.

The world around it is the one of the case format, section 3: admissions are confirmed after a cycle, then everything
it preempted ends at once, and the clock is a second later.
"""

import msgspec

from extender.engine.engine import Engine
from extender.engine.entry import CycleReport
from extender.model.events import WorkloadGone, WorkloadSeen
from extender.model.names import ResourceName, WorkloadUid
from extender.model.policy import DEFAULT_STRATEGIES, Policy
from tests.oracle.cases import Json, facts, workload

CLOCK_S = 1_000_000
CYCLES_MAX = 200
POLICIES = ("reference", "default")


def policy_named(name: str, *, fair_sharing: bool) -> Policy:
    """The policy *name* for a scenario with or without fair sharing."""
    if name == "reference":
        return Policy.reference(fair_sharing=fair_sharing)
    return Policy(fair_sharing=DEFAULT_STRATEGIES if fair_sharing else ())


def run(scenario: Json, policy: Policy) -> Json:
    """The result of *scenario* under *policy*, in the shape of the cases; amounts are numbers in canonical units."""
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
        for victim, _, _ in report.preempted:
            preempted.add(victim)
            engine.apply(WorkloadGone(victim))
    problems = engine.check()
    assert problems == [], problems
    return {
        "name": scenario["name"],
        "cycles": cycles,
        "final": _final(engine, scenario, preempted),
        **_usage(engine),
        **({"shares": _shares(engine)} if scenario["fairSharing"] else {}),
    }


def _cycle(engine: Engine, number: int, report: CycleReport) -> Json:
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
        "admitted": sorted((_admitted(engine, uid) for uid in report.admitted), key=lambda one: str(one["name"])),
        "preempted": sorted(
            ({"name": victim, "by": by, "reason": reason} for victim, by, reason in report.preempted),
            key=lambda one: str(one["name"]),
        ),
        "pending": dict(report.pending),
    }


def _admitted(engine: Engine, uid: WorkloadUid) -> Json:
    flavors, count = _holds(engine, uid)
    return {"name": uid, "flavors": flavors, "count": count}


def _holds(engine: Engine, uid: WorkloadUid) -> tuple[dict[str, str], int]:
    admission = engine.admission_of(uid)
    assert admission is not None
    flavors = {str(resource): str(flavor) for part in admission.assignments for resource, flavor in part.flavors}
    return flavors, sum(part.count for part in admission.assignments)


def _final(engine: Engine, scenario: Json, preempted: set[str]) -> Json:
    names = [WorkloadUid(short["name"]) for short in scenario["workloads"]]
    held = {name: _holds(engine, name) for name in names if engine.is_charged(name)}
    return {
        "admitted": {name: flavors for name, (flavors, _) in held.items()},
        "counts": {name: count for name, (_, count) in held.items()},
        "preempted": sorted(preempted),
        "pending": sorted(name for name in names if name not in held and name not in preempted),
    }


def _usage(engine: Engine) -> Json:
    usage: Json = {}
    borrowing: Json = {}
    for name in engine.cluster_queue_names():
        for row in engine.view(name).usage:
            usage.setdefault(name, {}).setdefault(row.flavor, {})[row.resource] = row.used
            if row.borrowed:
                borrowing.setdefault(name, {}).setdefault(row.flavor, {})[row.resource] = row.borrowed
    cohorts: Json = {}
    for cohort in engine.cohort_names():
        used: dict[str, dict[ResourceName, int]] = {}
        subtree: dict[str, dict[ResourceName, int]] = {}
        for line in engine.cohort_view(cohort).usage:
            used.setdefault(line.flavor, {})[line.resource] = line.used
            subtree.setdefault(line.flavor, {})[line.resource] = line.subtree
        cohorts[cohort] = {"usage": used, "subtreeQuota": subtree}
    return {"usage": usage, "borrowing": borrowing, "cohorts": cohorts}


def _shares(engine: Engine) -> Json:
    queues = {name: engine.view(name) for name in engine.cluster_queue_names()}
    cohorts = {name: engine.cohort_view(name) for name in engine.cohort_names()}
    return {
        "clusterQueues": {
            name: {"precise": view.share, "weighted": view.weighted_share} for name, view in queues.items()
        },
        "cohorts": {name: {"precise": view.share, "weighted": view.weighted_share} for name, view in cohorts.items()},
    }
