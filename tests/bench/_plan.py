"""What a scalability run submits: queues and, of each, when which workloads are created.

Built in are the numbers that the reference publishes for its baseline and large-scale tests (``_virtual``). A file in
the format of the reference's generators gives others: a list of cohort classes, each with ``queuesSets``, each with
``workloadsSets``.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.bench import _virtual


class Class(NamedTuple):
    """Workloads of one kind: *cpu* in cores, *run_s* from admission to end."""

    name: str
    cpu: int
    priority: int
    run_s: float


class Queue(NamedTuple):
    """A ClusterQueue with its LocalQueue; quotas in cores."""

    name: str
    cohort: str
    nominal: int
    borrowing_limit: int | None
    reclaim: str
    within: str


class Arrival(NamedTuple):
    """A workload: when it is created, seconds from the start."""

    at_s: float
    queue: int
    kind: Class


class Plan(NamedTuple):
    """All of it; arrivals in the order of time."""

    name: str
    queues: list[Queue]
    arrivals: list[Arrival]

    @property
    def nominal(self) -> int:
        """Cores of all queues."""
        return sum(queue.nominal for queue in self.queues)

    @property
    def work_s(self) -> float:
        """Core-seconds of all workloads."""
        return sum(arrival.kind.cpu * arrival.kind.run_s for arrival in self.arrivals)

    @property
    def classes(self) -> dict[str, Class]:
        """The classes by name."""
        return {arrival.kind.name: arrival.kind for arrival in self.arrivals}


class _Section(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A part of a generator file."""


class _Workload(_Section):
    class_name: str
    runtime_ms: int
    priority: int
    request: int


class _WorkloadsSet(_Section):
    count: int
    creation_interval_ms: int
    workloads: list[_Workload]


class _QueuesSet(_Section):
    class_name: str
    count: int
    nominal_quota: int
    workloads_sets: list[_WorkloadsSet]
    borrowing_limit: int | None = None
    reclaim_within_cohort: str = "Never"
    within_cluster_queue: str = "Never"


class _Cohort(_Section):
    class_name: str
    count: int
    queues_sets: list[_QueuesSet]


def plan(generator: str, *, scale_down: int = 1) -> Plan:
    """The plan of that name, or of the file there; *scale_down* leaves that fraction of each set, at the same pace.

    Raises: OSError, msgspec.ValidationError.
    """
    built_in = {"baseline": _virtual.BASELINE, "large-scale": _virtual.LARGE_SCALE}
    if generator in built_in:
        return _plan(generator, [_built_in(built_in[generator])], scale_down)
    path = Path(generator)
    return _plan(path.stem, msgspec.yaml.decode(path.read_bytes(), type=list[_Cohort]), scale_down)


def _built_in(generator: _virtual.Generator) -> _Cohort:
    sets = [
        _WorkloadsSet(kind.count, kind.every_ms, [_Workload(kind.name, kind.run_ms, kind.priority, kind.cpu)])
        for kind in generator.kinds
    ]
    queues = _QueuesSet(
        class_name="cq",
        count=generator.queues,
        nominal_quota=_virtual.NOMINAL,
        borrowing_limit=_virtual.BORROWS,
        reclaim_within_cohort="Any",
        within_cluster_queue="LowerPriority",
        workloads_sets=sets,
    )
    return _Cohort("cohort", generator.cohorts, [queues])


def _plan(name: str, cohorts: list[_Cohort], scale_down: int) -> Plan:
    queues: list[Queue] = []
    arrivals: list[Arrival] = []
    for cohort in cohorts:
        for number in range(cohort.count):
            for of_kind in cohort.queues_sets:
                for index in range(of_kind.count):
                    arrivals += _arrivals(of_kind, len(queues), scale_down)
                    queues.append(
                        Queue(
                            name=f"{cohort.class_name}-{number}-{of_kind.class_name}-{index}",
                            cohort=f"{cohort.class_name}-{number}",
                            nominal=of_kind.nominal_quota,
                            borrowing_limit=of_kind.borrowing_limit,
                            reclaim=of_kind.reclaim_within_cohort,
                            within=of_kind.within_cluster_queue,
                        )
                    )
    arrivals.sort(key=lambda one: (one.at_s, one.queue, one.kind.name))
    return Plan(name, queues, arrivals)


def _arrivals(queues: _QueuesSet, queue: int, scale_down: int) -> list[Arrival]:
    found = []
    for of_kind in queues.workloads_sets:
        at_ms = 0
        for _ in range(max(1, of_kind.count // scale_down)):
            for workload in of_kind.workloads:
                kind = Class(workload.class_name, workload.request, workload.priority, workload.runtime_ms / 1000)
                found.append(Arrival(at_ms / 1000, queue, kind))
                at_ms += of_kind.creation_interval_ms
    return found
