"""Which flavor serves which resource of a workload, and whether that fits, needs victims, or cannot be.

A *plan* is what does not change with usage: for one shape in one cluster queue, the flavors in the order of the spec,
which of them the pods may use at all, and the cells that each resource would be charged to. Scanning a plan against
the ledger gives an *assignment*. Whether victims exist is asked through a function, so this module knows nothing of
preemption. Source: flavor specification, sections 2 to 7.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

from extender.engine.hierarchy import Cell, Leaf
from extender.engine.ledger import available, level
from extender.engine.matching import mismatch
from extender.engine.queues import Progress, Shape
from extender.model.amounts import times
from extender.model.names import PODS, FlavorName, FlavorResource, ResourceName
from extender.model.quota import PreemptionPolicy, Preference, ResourceFlavor
from extender.model.workload import PodSet


class Mode(IntEnum):
    """How one flavor-resource, a flavor or a workload can be served, from worse to better."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    DEFERRED_FIT = 4
    FIT = 5


NO_FIT, NO_CANDIDATES, PREEMPT, FIT = Mode.NO_FIT, Mode.NO_CANDIDATES, Mode.PREEMPT, Mode.FIT
Simulate = Callable[[Cell, int], tuple[Mode, int]]
"""Mode and borrow level of an amount that does not fit: asked per cell, by a search for victims."""
Rank = tuple[int, int, int]


class Choice:
    """One flavor for one pod set. ``mismatch``: why the pods cannot use it, empty if they can."""

    __slots__ = ("cells", "flavor", "mismatch")

    def __init__(self, flavor: FlavorName, cells: tuple[Cell, ...], problem: str) -> None:
        self.flavor = flavor
        self.cells = cells
        self.mismatch = problem


class GroupPlan:
    """The requested resources of one resource group, with one pod's amounts, and the group's flavors."""

    __slots__ = ("choices", "resources")

    def __init__(self, resources: tuple[tuple[ResourceName, int], ...], choices: tuple[Choice, ...]) -> None:
        self.resources = resources
        self.choices = choices


class PodSetPlan:
    """One pod set: its groups in the order of the spec, and the resources that no group covers."""

    __slots__ = ("groups", "pod_set", "uncovered")

    def __init__(self, pod_set: PodSet, groups: tuple[GroupPlan, ...], uncovered: tuple[ResourceName, ...]) -> None:
        self.pod_set = pod_set
        self.groups = groups
        self.uncovered = uncovered


class Plan:
    """A shape in a cluster queue. ``counts`` are the full ones; ``reducible``: fewer pods of some pod set may do."""

    __slots__ = ("counts", "pod_sets", "reducible")

    def __init__(self, pod_sets: tuple[PodSetPlan, ...]) -> None:
        self.pod_sets = pod_sets
        self.counts = tuple(part.pod_set.count for part in pod_sets)
        self.reducible = any(
            part.pod_set.count_min is not None and part.pod_set.count_min < part.pod_set.count for part in pod_sets
        )

    @property
    def steps(self) -> int:
        """How many pods it can do without."""
        return sum(part.pod_set.count - _least(part.pod_set) for part in self.pod_sets)

    def counts_at(self, step: int) -> tuple[int, ...]:
        """Counts between full (0) and least (``steps``). Follows: flavor specification, section 6."""
        steps = self.steps
        pod_sets = [part.pod_set for part in self.pod_sets]
        return tuple(pod_set.count - (pod_set.count - _least(pod_set)) * step // steps for pod_set in pod_sets)


def _least(pod_set: PodSet) -> int:
    return pod_set.count if pod_set.count_min is None else min(pod_set.count_min, pod_set.count)


class Pick:
    """One resource of a pod set with its flavor, the amount in all, and how that can be served."""

    __slots__ = ("amount", "cell", "mode", "resource")

    def __init__(self, resource: ResourceName, amount: int, cell: Cell, mode: Mode) -> None:
        self.resource = resource
        self.amount = amount
        self.cell = cell
        self.mode = mode


class Assignment:
    """The result of a scan. ``level`` is the highest borrow level; ``parts`` has the picks of each pod set.

    ``progress`` says where each group's scan stopped, None if nothing is left to try in any.
    """

    __slots__ = ("counts", "level", "mode", "parts", "progress", "usage")

    def __init__(self, counts: tuple[int, ...]) -> None:
        self.counts = counts
        self.mode: Mode = FIT
        self.level = 0
        self.parts: list[list[Pick]] = []
        self.usage: dict[Cell, int] = {}
        self.progress: Progress | None = None

    def needs(self) -> list[Cell]:
        """The cells in which room has to be made."""
        return list({pick.cell: None for part in self.parts for pick in part if pick.mode != FIT})


def make_plan(leaf: Leaf, shape: Shape, flavors: Mapping[FlavorName, ResourceFlavor]) -> Plan:
    """The plan of *shape* in *leaf*. Cost: O(pod sets × flavors)."""
    return Plan(tuple(_plan_pod_set(leaf, pod_set, flavors) for pod_set in shape.pod_sets))


def _plan_pod_set(leaf: Leaf, pod_set: PodSet, flavors: Mapping[FlavorName, ResourceFlavor]) -> PodSetPlan:
    requests = dict(pod_set.requests)
    groups = () if leaf.spec is None else leaf.spec.resource_groups
    if any(PODS in group.covered for group in groups):
        requests[PODS] = 1
    plans = []
    for group in groups:
        wanted = tuple((resource, requests.pop(resource)) for resource in group.covered if resource in requests)
        if not wanted:
            continue
        choices = []
        for quotas in group.flavors:
            flavor = flavors.get(quotas.flavor)
            problem = "its ResourceFlavor does not exist" if flavor is None else mismatch(pod_set, flavor)
            cells = tuple(leaf.cells[FlavorResource(quotas.flavor, resource)] for resource, _ in wanted)
            choices.append(Choice(quotas.flavor, cells, problem))
        plans.append(GroupPlan(wanted, tuple(choices)))
    uncovered = tuple(resource for resource, amount in requests.items() if amount)
    return PodSetPlan(pod_set, tuple(plans), uncovered)


class Scan:
    """The rules of one cluster queue for scanning flavors, taken from its spec and the policy."""

    __slots__ = ("_borrows", "_lower_level_first", "_next_borrowing", "_next_preempting", "_truthful")

    def __init__(self, leaf: Leaf, *, fair_sharing: bool, truthful: bool) -> None:
        assert leaf.spec is not None
        fungibility, preemption = leaf.spec.fungibility, leaf.spec.preemption
        self._next_borrowing = fungibility.next_when_borrowing
        self._next_preempting = fungibility.next_when_preempting
        self._lower_level_first = fungibility.preference is Preference.PREEMPTION_OVER_BORROWING
        self._borrows = preemption.borrow_within_cohort is not PreemptionPolicy.NEVER or (
            fair_sharing and preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER
        )
        self._truthful = truthful

    def assign(
        self,
        plan: Plan,
        *,
        counts: tuple[int, ...],
        simulate: Simulate,
        progress: Progress | None = None,
        only: Sequence[Sequence[FlavorName]] | None = None,
    ) -> Assignment:
        """Scan the flavors of *plan* for *counts* pods, going on after *progress*; *only* restricts each group to one.

        Cost: O(pod sets × flavors × depth), and one search per amount that does not fit.
        """
        result = Assignment(counts)
        tried: list[tuple[int, ...]] = []
        pending = False
        for at, part in enumerate(plan.pod_sets):
            stops = progress[at] if progress is not None and at < len(progress) else ()
            picks: list[Pick] = []
            result.parts.append(picks)
            stopped = []
            fit = True
            for group_at, group in enumerate(part.groups):
                start = stops[group_at] + 1 if group_at < len(stops) else 0
                chosen = None if only is None else only[at][group_at]
                found = self._scan_group(group, result, at, start, chosen, simulate)
                if found is None:
                    result.mode = NO_FIT
                    return result
                picked, rank_fits, top, stop = found
                picks += picked
                fit = fit and rank_fits
                result.level = max(result.level, top)
                stopped.append(stop)
                pending = pending or stop >= 0
            if part.uncovered:
                result.mode = NO_FIT
                return result
            if not fit:
                result.mode = min(result.mode, PREEMPT)
            for pick in picks:
                result.usage[pick.cell] = result.usage.get(pick.cell, 0) + pick.amount
            tried.append(tuple(stopped))
        if not plan.pod_sets:
            result.mode = NO_FIT
        if pending:
            result.progress = tuple(tried)
        return result

    def _scan_group(
        self,
        group: GroupPlan,
        result: Assignment,
        at: int,
        start: int,
        only: FlavorName | None,
        simulate: Simulate,
    ) -> tuple[list[Pick], bool, int, int] | None:
        """The picks of *group*, whether its flavor fits, their highest borrow level, and where the scan stopped."""
        count = result.counts[at]
        choices = group.choices
        best: tuple[Rank, list[Pick], bool, int] | None = None
        index = start
        while index < len(choices):
            choice = choices[index]
            if not choice.mismatch and (only is None or choice.flavor == only):
                rank, mode, here, picks, top = self._try(group, choice, count, result.usage, simulate)
                if mode != NO_FIT:
                    goes_on = (
                        mode == NO_CANDIDATES
                        or (mode != FIT and self._next_preempting)
                        or (here > 0 and self._next_borrowing)
                    )
                    if not goes_on or best is None or rank > best[0]:
                        best = (rank, picks, mode == FIT, top)
                    if not goes_on:
                        break
            index += 1
        if best is None:
            return None
        return best[1], best[2], best[3], index if index < len(choices) - 1 else -1

    def _try(
        self, group: GroupPlan, choice: Choice, count: int, assumed: dict[Cell, int], simulate: Simulate
    ) -> tuple[Rank, Mode, int, list[Pick], int]:
        """Rank, mode and level of a flavor (those of its worst resource), its picks and their highest level."""
        worst: Rank | None = None
        mode, here, top, lowest = FIT, 0, 0, FIT
        picks = []
        for (resource, per_pod), cell in zip(group.resources, choice.cells, strict=True):
            amount = times(per_pod, count)
            one, one_level = self._mode(cell, assumed.get(cell, 0) + amount if assumed else amount, simulate)
            picks.append(Pick(resource, amount, cell, one))
            rank = self._rank(one, one_level)
            if worst is None or rank < worst:
                worst, mode, here = rank, one, one_level
            if one_level > top:
                top = one_level
            if one < lowest:
                lowest = one
        assert worst is not None
        if self._truthful and mode == FIT and lowest != FIT:
            mode, here = lowest, top
            worst = self._rank(mode, here)
        return worst, mode, here, picks, top

    def _mode(self, cell: Cell, amount: int, simulate: Simulate) -> tuple[Mode, int]:
        if amount > cell.potential:
            return NO_FIT, 0
        if amount <= 0 or amount <= available(cell):
            return FIT, level(cell, amount)[0]
        here, smaller = level(cell, amount)
        if cell.nominal >= amount or smaller or self._borrows:
            return simulate(cell, amount)
        return NO_FIT, here

    def _rank(self, mode: Mode, here: int) -> Rank:
        """Larger is preferred. Follows: flavor specification, section 4.1."""
        if self._lower_level_first:
            return (min(mode, 2), -here, mode)
        return (mode, -here, 0)
