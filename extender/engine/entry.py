"""A head within a cycle: what it was assigned, whom it takes, what became of it; and the record of a whole cycle."""

from enum import StrEnum

import msgspec

from extender.engine.flavors import FIT, NO_FIT, PREEMPT, Assignment, Mode, Plan
from extender.engine.hierarchy import Cell, Leaf
from extender.engine.loops import Kind, kind_of
from extender.engine.preemption.candidates import Victim
from extender.engine.queues import OrderKey, Pending
from extender.engine.shares import Share
from extender.engine.state import ClusterQueueState
from extender.model.names import FlavorName, ResourceName, WorkloadUid
from extender.model.workload import PodSetAssignment

_MODE_NAMES = {FIT: "Fit", PREEMPT: "Preempt", NO_FIT: "NoFit", Mode.DEFERRED_FIT: "DeferredFit"}


class Outcome(StrEnum):
    """What became of a head."""

    ADMITTED = "Admitted"
    NO_FIT = "NoFit"
    NO_CANDIDATES = "PreemptionNoCandidates"
    PENDING_PREEMPTION = "PendingPreemption"
    SKIPPED = "skipped/FailedAfterNomination"


class HeadReport(msgspec.Struct, frozen=True):
    """What was nominated for a head: for people who compare decisions."""

    mode: str
    borrows: int
    flavors: tuple[tuple[ResourceName, FlavorName], ...]
    count: int
    shares: tuple[tuple[str, float], ...] = ()


class Entry:
    """A head within a cycle. ``waits``: it is enough that victims leave which were chosen before."""

    __slots__ = ("assignment", "outcome", "pending", "plan", "shares", "state", "victims", "waits")

    def __init__(self, state: ClusterQueueState, pending: Pending, plan: Plan) -> None:
        self.state = state
        self.pending = pending
        self.plan = plan
        self.assignment = Assignment(plan.counts)
        self.victims: list[Victim] = []
        self.waits = False
        self.outcome = Outcome.NO_FIT
        self.shares: list[tuple[str, float]] = []

    @property
    def leaf(self) -> Leaf:
        """Where it would be charged."""
        return self.state.leaf

    @property
    def key(self) -> OrderKey:
        """Priority, age, UID."""
        return self.pending.key

    @property
    def kind(self) -> Kind:
        """What it shares with the one that would replace it."""
        return kind_of(self.state.name, self.pending.workload)

    @property
    def level(self) -> int:
        """Its borrow level."""
        return self.assignment.level

    def claims(self) -> dict[Cell, int]:
        """What it would use; nothing if it cannot fit."""
        return {} if self.assignment.mode == NO_FIT else self.assignment.usage

    def competed(self, cohort: str, value: Share) -> None:
        """Note the share by which it competed."""
        self.shares.append((cohort, value.exact()))

    def flavors(self) -> list[list[FlavorName]]:
        """The flavor it was assigned, per pod set and resource group."""
        chosen = []
        for part, picks in zip(self.plan.pod_sets, self.assignment.parts, strict=True):
            served = {pick.resource: pick.cell.fr.flavor for pick in picks}
            chosen.append([served[group.resources[0][0]] for group in part.groups])
        return chosen

    def assignments(self) -> tuple[PodSetAssignment, ...]:
        """What it is admitted with, per pod set."""
        assignment = self.assignment
        return tuple(
            PodSetAssignment(
                plan.pod_set.name,
                tuple(sorted([(pick.resource, pick.cell.fr.flavor) for pick in picks])),
                tuple(sorted([(pick.resource, pick.amount) for pick in picks])),
                count,
            )
            for plan, picks, count in zip(self.plan.pod_sets, assignment.parts, assignment.counts, strict=True)
        )

    def report(self) -> HeadReport:
        """For the record."""
        assignment = self.assignment
        flavors = {pick.resource: pick.cell.fr.flavor for part in assignment.parts for pick in part}
        return HeadReport(
            mode=_MODE_NAMES[assignment.mode],
            borrows=assignment.level,
            flavors=tuple(sorted(flavors.items())),
            count=sum(assignment.counts),
            shares=tuple(self.shares),
        )


class CycleReport(msgspec.Struct, frozen=True):
    """One cycle in full: heads, their order per root, admissions, victims with preemptor and reason, others."""

    heads: dict[WorkloadUid, HeadReport]
    order: dict[str, list[WorkloadUid]]
    admitted: list[WorkloadUid]
    preempted: list[tuple[WorkloadUid, WorkloadUid, str]]
    pending: dict[WorkloadUid, str]

    def note(self, root: str, entry: Entry) -> None:
        """Record what became of *entry* in the tree below *root*."""
        uid = entry.key[2]
        self.heads[uid] = entry.report()
        self.order.setdefault(root, []).append(uid)
        if entry.outcome is Outcome.ADMITTED:
            self.admitted.append(uid)
        else:
            self.pending[uid] = entry.outcome.value
