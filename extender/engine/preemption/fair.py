"""Preemption with fair sharing: whoever is furthest above its share gives way, as long as that is fair.

The preemptor is charged first, then victims are sought one by one, from the root down towards the largest share.
Shares only fall while victims are released, so the largest one is kept in heaps whose top is looked at anew.
Source: preemption specification, section 7. Sibling cohorts of equal share are undefined in the reference; here the
smaller name is first.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush, heapreplace
from typing import TypeVar

from extender.engine.hierarchy import Charge, ChargeKey, CohortNode, Leaf, Node
from extender.engine.ledger import add_all, remove_all, within_quota
from extender.engine.preemption.candidates import Question, Victim, allowed, fill_back, restore
from extender.engine.shares import Share, share
from extender.model.effects import EvictionReason
from extender.model.policy import FairSharingStrategy
from extender.model.quota import PreemptionPolicy

TargetKey = tuple[bool, float, bool, bool, ChargeKey]
BranchKey = tuple[bool, float, str]
K = TypeVar("K", TargetKey, BranchKey)
V = TypeVar("V")


def passes(strategy: FairSharingStrategy, preemptor: Share, before: Share, after: Share) -> bool:
    """Whether *strategy* lets a side of share *preemptor* take from one whose share falls from *before* to *after*."""
    if strategy is FairSharingStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE:
        return preemptor <= after
    return preemptor < before


class _Target:
    """A cluster queue with candidates; the next one is last, so that taking it is a pop."""

    __slots__ = ("charges", "leaf")

    def __init__(self, leaf: Leaf, charges: list[Charge]) -> None:
        self.leaf = leaf
        self.charges = charges[::-1]


class _Branch:
    """A cohort with candidates below it: its targets and child branches, largest share first."""

    __slots__ = ("branches", "node", "targets")

    def __init__(self, node: CohortNode) -> None:
        self.node = node
        self.targets: list[tuple[TargetKey, _Target]] = []
        self.branches: list[tuple[BranchKey, _Branch]] = []


def _top(heap: list[tuple[K, V]], key_of: Callable[[V], K | None]) -> tuple[K, V] | None:
    """The first entry of *heap* by its key as it is now: keys only grow while victims are released; None is out."""
    while heap:
        key = key_of(heap[0][1])
        if key is None:
            heappop(heap)
        elif key != heap[0][0]:
            heapreplace(heap, (key, heap[0][1]))
        else:
            return heap[0]
    return None


class _Targets:
    """From which cluster queue the next victim comes. Follows: preemption specification, section 7.2."""

    def __init__(self, preemptor: Leaf, candidates: Iterable[tuple[Leaf, list[Charge]]]) -> None:
        self._own = preemptor
        self._path = set(preemptor.path())
        self._branches: dict[CohortNode, _Branch] = {}
        self._root: _Branch | None = None
        self._alone: _Target | None = None
        for leaf, charges in candidates:
            target = _Target(leaf, charges)
            if leaf.parent is None:
                self._alone = target
            else:
                key = self._target_key(target)
                if key is not None:
                    heappush(self._branch(leaf.parent).targets, (key, target))

    def _branch(self, node: CohortNode) -> _Branch:
        """The branch of *node*, hung below those of its ancestors."""
        known = self._branches.get(node)
        if known is not None:
            return known
        made = self._branches[node] = _Branch(node)
        if node.parent is None:
            self._root = made
        else:
            above = self._branch(node.parent)
            key = self._branch_key(made)
            if key is not None:
                heappush(above.branches, (key, made))
        return made

    def __iter__(self) -> Iterator[_Target]:
        while self._alone is not None and self._alone.charges:
            yield self._alone
        while self._root is not None:
            target = self._next(self._root)
            if target is not None:
                yield target
            elif not self._root.targets and not self._root.branches:
                return

    def _next(self, branch: _Branch) -> _Target | None:
        """The target below *branch*; None after an exhausted branch was cut off, or if nothing is left."""
        target = _top(branch.targets, self._target_key)
        child = _top(branch.branches, self._branch_key)
        if child is None:
            return None if target is None else target[1]
        if target is not None and target[0][:2] < child[0][:2]:
            return target[1]
        found = self._next(child[1])
        if found is None and not child[1].targets and not child[1].branches:
            heappop(branch.branches)
        return found

    def _target_key(self, target: _Target) -> TargetKey | None:
        """Its place among siblings; None when it is out: without candidates, or not borrowing and not our own."""
        borrows, value = share(target.leaf)
        if not target.charges or (not borrows and target.leaf is not self._own):
            return None
        first = target.charges[-1].key
        return (not value.endless, -value.value, first[0], target.leaf is self._own, first)

    def _branch_key(self, branch: _Branch) -> BranchKey | None:
        borrows, value = share(branch.node)
        if not borrows and branch.node not in self._path:
            return None
        return (not value.endless, -value.value, branch.node.name)


def victims(question: Question, strategies: tuple[FairSharingStrategy, ...], *, settled: bool) -> list[Victim]:
    """Whom to evict so that the workload fits; empty if nobody helps. The ledger is left as it was found.

    *settled*: a victim of the own cluster queue does not return if only its going made another one fair game; else the
    other side could take its own back, without end.
    Cost: O(nodes + c · depth · log) for c candidates.
    """
    candidates = _candidates(question)
    if not candidates:
        return []
    search = _Search(question)
    add_all(question.requests)
    done = search.first(candidates, strategies[0]) or (len(strategies) > 1 and search.second(strategies[1]))
    remove_all(question.requests)
    found = search.victims
    if done:
        keep = search.fair_only_without(strategies) if settled else None
        fill_back(found, still_fits=lambda: question.fits(borrowing=True), keep=keep)
    restore(found)
    return found if done else []


def _candidates(question: Question) -> list[tuple[Leaf, list[Charge]]]:
    leaf = question.leaf
    found = [(leaf, allowed(question, question.policies.within_cluster_queue, leaf))]
    policy = question.policies.reclaim_within_cohort
    if leaf.parent is not None and policy is not PreemptionPolicy.NEVER and leaf.tree is not None:
        found += [
            (other, allowed(question, policy, other))
            for other in leaf.tree.leaves
            if other is not leaf and other.active and not within_quota(other, question.needs)
        ]
    return [(owner, charges) for owner, charges in found if charges]


class _Search:
    """One search: the victims so far, which are released, and whom the first strategy refused."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.victims: list[Victim] = []
        self._refused: dict[Leaf, list[Charge]] = {}
        self._sides: dict[Leaf, tuple[Node, Node]] = {}
        self._path = {*question.leaf.path(), question.leaf}

    def _take(self, charge: Charge, reason: EvictionReason) -> bool:
        """Release it; True if the workload now fits (its own charge taken out for the test)."""
        remove_all(charge.usage)
        self.victims.append(Victim(charge, reason))
        remove_all(self.question.requests)
        fit = self.question.fits(borrowing=True)
        add_all(self.question.requests)
        return fit

    def first(self, candidates: list[tuple[Leaf, list[Charge]]], strategy: FairSharingStrategy) -> bool:
        """Own workloads, reclaim within nominal, or whatever *strategy* allows."""
        within = within_quota(self.question.leaf, self.question.needs)
        for target in _Targets(self.question.leaf, candidates):
            if target.leaf is self.question.leaf:
                if self._take_next(target, EvictionReason.IN_CLUSTER_QUEUE):
                    return True
            elif within:
                if self._take_next(target, EvictionReason.IN_COHORT_RECLAMATION):
                    return True
            elif self._take_fairly(target, strategy):
                return True
        return False

    def _take_next(self, target: _Target, reason: EvictionReason) -> bool:
        charge = target.charges.pop()
        return self.question.may_take(charge, reason) and self._take(charge, reason)

    def _take_fairly(self, target: _Target, strategy: FairSharingStrategy) -> bool:
        ours, theirs = self._meet(target.leaf)
        preemptor, before = share(ours)[1], share(theirs)[1]
        while target.charges:
            charge = target.charges.pop()
            if not self.question.may_take(charge, EvictionReason.IN_COHORT_FAIR_SHARING):
                continue
            remove_all(charge.usage)
            after = share(theirs)[1]
            add_all(charge.usage)
            if passes(strategy, preemptor, before, after):
                return self._take(charge, EvictionReason.IN_COHORT_FAIR_SHARING)
            self._refused.setdefault(target.leaf, []).append(charge)
        return False

    def second(self, strategy: FairSharingStrategy) -> bool:
        """One more workload of each refused cluster queue, if *strategy* allows."""
        for target in _Targets(self.question.leaf, self._refused.items()):
            ours, theirs = self._meet(target.leaf)
            preemptor, before = share(ours)[1], share(theirs)[1]
            charge = target.charges.pop()
            target.charges.clear()
            if passes(strategy, preemptor, before, before) and self._take(
                charge, EvictionReason.IN_COHORT_FAIR_SHARING
            ):
                return True
        return False

    def fair_only_without(self, strategies: tuple[FairSharingStrategy, ...]) -> Callable[[int], bool]:
        """Whether the victim at a place, which was just put back, makes the going of another one unfair."""

        def unfair(place: int) -> bool:
            if self.victims[place].charge.leaf is not self.question.leaf:
                return False
            add_all(self.question.requests)
            others = [victim.charge for at, victim in enumerate(self.victims) if at != place]
            found = any(not self._fair(charge, strategies) for charge in others)
            remove_all(self.question.requests)
            return found

        return unfair

    def _fair(self, charge: Charge, strategies: tuple[FairSharingStrategy, ...]) -> bool:
        """Whether some strategy lets the preemptor, which is charged, have taken *charge* as the last one."""
        if charge.leaf is self.question.leaf or within_quota(self.question.leaf, self.question.needs):
            return True
        ours, theirs = self._meet(charge.leaf)
        preemptor, after = share(ours)[1], share(theirs)[1]
        add_all(charge.usage)
        before = share(theirs)[1]
        remove_all(charge.usage)
        return any(passes(strategy, preemptor, before, after) for strategy in strategies)

    def _meet(self, leaf: Leaf) -> tuple[Node, Node]:
        """The two children of the lowest common cohort, on our path and on the path of *leaf*."""
        known = self._sides.get(leaf)
        if known is None:
            theirs: Node = leaf
            while theirs.parent is not None and theirs.parent not in self._path:
                theirs = theirs.parent
            ours: Node = self.question.leaf
            while ours.parent is not theirs.parent and ours.parent is not None:
                ours = ours.parent
            known = self._sides[leaf] = (ours, theirs)
        return known
