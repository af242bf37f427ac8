"""Preemption without fair sharing: priorities, and the right of a subtree to its own quota.

Going up from the preemptor's cluster queue, once the whole request would fit into what a subtree owns, everything
further out is *reclaimed* by right. Candidates before that may be used while borrowing only if the queue says so.
Source: preemption specification, section 4.
"""

from enum import Enum
from typing import NamedTuple

from extender.engine.hierarchy import Cell, Charge, CohortNode, Leaf, Node
from extender.engine.ledger import remove_all, within_quota
from extender.engine.preemption.candidates import Question, Victim, allowed, fill_back, restore
from extender.model.amounts import UNLIMITED
from extender.model.effects import EvictionReason
from extender.model.names import FlavorResource
from extender.model.quota import PreemptionPolicy


class Right(Enum):
    """By which right a candidate may be taken."""

    OWN = EvictionReason.IN_CLUSTER_QUEUE
    HIERARCHICAL = EvictionReason.IN_COHORT_RECLAMATION
    WITHOUT_BORROWING = EvictionReason.IN_COHORT_RECLAMATION.value + " without borrowing"
    WHILE_BORROWING = EvictionReason.IN_COHORT_RECLAIM_WHILE_BORROWING

    @property
    def reason(self) -> EvictionReason:
        """The word for it on the victim."""
        if self is Right.WITHOUT_BORROWING:
            return EvictionReason.IN_COHORT_RECLAMATION
        return EvictionReason(self.value)


class Candidate(NamedTuple):
    """A charge, the right to it, and the cohort where its path meets the preemptor's (None: own queue)."""

    charge: Charge
    right: Right
    meeting: CohortNode | None


def victims(question: Question) -> list[Victim]:
    """Whom to evict so that the workload fits; empty if nobody helps. The ledger is left as it was found.

    Cost: O(nodes of the tree + c log c + c · depth) for c candidates.
    """
    policies = question.policies
    own = [
        Candidate(charge, Right.OWN, None) for charge in allowed(question, policies.within_cluster_queue, question.leaf)
    ]
    hierarchical, by_priority = _collect(question)
    candidates = _in_order(hierarchical, by_priority, own)
    if not candidates:
        return []
    forbidden = policies.borrow_within_cohort is PreemptionPolicy.NEVER
    under = all(cell.usage < cell.nominal for cell in question.needs.values())
    if (not hierarchical and not by_priority) or (forbidden and not under):
        attempts = [True]
    elif forbidden and not hierarchical:
        attempts = [False, True]
    else:
        attempts = [True, False]
    for borrowing in attempts:
        found = _attempt(question, candidates, borrowing=borrowing)
        if found:
            return found
    return []


def _in_order(*lists: list[Candidate]) -> list[Candidate]:
    """Evicted ones of all lists first; within that, list by list. Each by rank."""
    for one in lists:
        one.sort(key=lambda candidate: candidate.charge.key)
    return [c for one in lists for c in one if c.charge.evicted] + [
        c for one in lists for c in one if not c.charge.evicted
    ]


def _collect(question: Question) -> tuple[list[Candidate], list[Candidate]]:
    """Candidates of other cluster queues: those reclaimed by right of hierarchy, and those by priority."""
    hierarchical: list[Candidate] = []
    by_priority: list[Candidate] = []
    policy = question.policies.reclaim_within_cohort
    if question.leaf.parent is None or policy is PreemptionPolicy.NEVER:
        return hierarchical, by_priority
    rest: list[tuple[Cell | None, int]] = [*question.requests]
    advantage, rest = _owns(rest)
    visited: Node = question.leaf
    for cohort in question.leaf.path():
        found = by_priority if not advantage else hierarchical
        for leaf in _borrowers(cohort, visited, question.needs):
            for charge in allowed(question, policy, leaf):
                right = Right.HIERARCHICAL if advantage else _right(question, charge)
                found.append(Candidate(charge, right, cohort))
        fit, rest = _owns(rest)
        advantage = advantage or fit
        visited = cohort
    return hierarchical, by_priority


def _owns(amounts: list[tuple[Cell | None, int]]) -> tuple[bool, list[tuple[Cell | None, int]]]:
    """Whether the cells' subtree quota holds all *amounts*, and what their kept parts leave to the parents."""
    owns = True
    rest: list[tuple[Cell | None, int]] = []
    for cell, amount in amounts:
        assert cell is not None
        owns = owns and (cell.subtree >= cell.usage + amount or cell.subtree == UNLIMITED)
        rest.append((cell.parent, max(0, amount - max(0, cell.local - cell.usage))))
    return owns, rest


def _borrowers(cohort: CohortNode, visited: Node, needs: dict[FlavorResource, Cell]) -> list[Leaf]:
    """Active cluster queues of *cohort*, but not of *visited*, above quota as is every cohort between."""
    found = []
    stack = [cohort]
    while stack:
        here = stack.pop()
        found += [
            leaf
            for leaf in here.leaves.values()
            if leaf is not visited and leaf.active and not within_quota(leaf, needs)
        ]
        stack += [child for child in here.cohorts.values() if child is not visited and not within_quota(child, needs)]
    return found


def _right(question: Question, charge: Charge) -> Right:
    policies = question.policies
    if policies.borrow_within_cohort is PreemptionPolicy.NEVER:
        return Right.WITHOUT_BORROWING
    priority = charge.workload.priority
    threshold = policies.priority_threshold_max
    if priority >= question.priority or (threshold is not None and priority > threshold):
        return Right.WITHOUT_BORROWING
    return Right.WHILE_BORROWING


def _attempt(question: Question, candidates: list[Candidate], *, borrowing: bool) -> list[Victim]:
    """Release candidates in order until the workload fits, put back the useless ones, and undo."""
    found: list[Victim] = []
    done = False
    for charge, right, meeting in candidates:
        if not question.may_take(charge, right.reason):
            continue
        if meeting is not None:
            if borrowing and right is Right.WITHOUT_BORROWING:
                continue
            if not _still_borrows(charge.leaf, meeting, question.needs):
                continue
        remove_all(charge.usage)
        found.append(Victim(charge, right.reason))
        if question.fits(borrowing=borrowing):
            done = True
            break
    if done:
        fill_back(found, still_fits=lambda: question.fits(borrowing=borrowing))
    restore(found)
    return found if done else []


def _still_borrows(leaf: Leaf, meeting: CohortNode, needs: dict[FlavorResource, Cell]) -> bool:
    node: Node = leaf
    while node is not meeting:
        if within_quota(node, needs):
            return False
        assert node.parent is not None
        node = node.parent
    return True
