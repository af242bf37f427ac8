"""Why a workload waits, with the numbers of the ledger as it stands.

Flavors are alternatives, so the nearest one speaks; pod sets and resource groups are all needed, so the worst one
does. Among the nodes that bind on the way to the root the one that is shortest speaks, the lower one on ties.
Source: planning specification, section 1; flavor specification, section 5.1.
"""

from collections.abc import Mapping
from typing import NamedTuple

from extender.engine.flavors import Choice, GroupPlan, Plan, PodSetPlan
from extender.engine.hierarchy import Cell
from extender.engine.ledger import available
from extender.engine.queues import Pending
from extender.engine.state import ClusterQueueState
from extender.model.amounts import UNLIMITED, times
from extender.model.names import FlavorName
from extender.model.quota import ResourceFlavor, StopPolicy
from extender.model.reasons import Reason, ReasonCode, reason


class Finding(NamedTuple):
    """A reason with its rank: how severe, and how much is missing of what is needed."""

    severity: int
    shortage: float
    reason: Reason


_UNCOVERED, _MISMATCH, _TOO_LARGE, _WAITS = 5, 4, 3, 2


def standing(state: ClusterQueueState) -> Reason | None:
    """What stops the whole cluster queue, if anything does."""
    spec = state.leaf.spec
    if spec is not None and spec.stop_policy is not StopPolicy.NONE and not spec.deleting and not spec.misconfigured:
        return reason(ReasonCode.STOPPED, object=f"ClusterQueue {state.name}", policy=spec.stop_policy.value)
    if state.inactive:
        return reason(ReasonCode.QUEUE_INACTIVE, cluster_queue=state.name, cause=state.inactive)
    return None


def explain(state: ClusterQueueState, pending: Pending, flavors: Mapping[FlavorName, ResourceFlavor]) -> Reason:
    """The reason of a workload that stands in line in *state*. Cost: O(pod sets × flavors × depth)."""
    stopped = standing(state)
    if stopped is not None:
        return stopped
    victims = pending.victims
    left = sum(1 for uid, leaf in victims.items() if uid in leaf.charges)
    if left:
        return reason(ReasonCode.VICTIMS_LEAVING, left=left, victims=len(victims))
    plan = state.plan(pending.shape, flavors)
    found = _capacity(state, plan)
    if found is not None:
        return found.reason
    return _behind(state, pending) or _held(state, pending, plan) or reason(ReasonCode.NOT_EVALUATED)


def _capacity(state: ClusterQueueState, plan: Plan) -> Finding | None:
    """The worst finding over pod sets and resource groups, None if it fits alone."""
    worst: Finding | None = None
    assumed: dict[Cell, int] = {}
    for part in plan.pod_sets:
        for finding in (_uncovered(state, part), *(_group(state, part, group, assumed) for group in part.groups)):
            if finding is not None and (worst is None or finding[:2] > worst[:2]):
                worst = finding
    return worst


def _uncovered(state: ClusterQueueState, part: PodSetPlan) -> Finding | None:
    if not part.uncovered:
        return None
    assert state.leaf.spec is not None
    covered = sorted(name for group in state.leaf.spec.resource_groups for name in group.covered)
    return Finding(
        _UNCOVERED,
        1.0,
        reason(
            ReasonCode.RESOURCE_NOT_COVERED,
            cluster_queue=state.name,
            resource=part.uncovered[0],
            covered=", ".join(covered) or "nothing",
        ),
    )


def _group(state: ClusterQueueState, part: PodSetPlan, group: GroupPlan, assumed: dict[Cell, int]) -> Finding | None:
    """The nearest flavor of *group*, None if one of them fits; its amounts then count for later pod sets."""
    nearest: Finding | None = None
    count = part.pod_set.count if part.pod_set.count_min is None else part.pod_set.count_min
    for choice in group.choices:
        found = _choice(state, group, choice, count, assumed)
        if found is None:
            for (_, per_pod), cell in zip(group.resources, choice.cells, strict=True):
                assumed[cell] = assumed.get(cell, 0) + times(per_pod, count)
            return None
        if nearest is None or found[:2] < nearest[:2]:
            nearest = found
    return nearest


def _choice(
    state: ClusterQueueState, group: GroupPlan, choice: Choice, count: int, assumed: dict[Cell, int]
) -> Finding | None:
    if choice.mismatch:
        tried = ", ".join(other.flavor for other in group.choices)
        code = ReasonCode.NO_MATCHING_FLAVOR
        return Finding(_MISMATCH, 1.0, reason(code, tried=tried, flavor=choice.flavor, clause=choice.mismatch))
    worst: Finding | None = None
    for (_, per_pod), cell in zip(group.resources, choice.cells, strict=True):
        need = assumed.get(cell, 0) + times(per_pod, count)
        found = _amount(state, cell, need)
        if found is not None and (worst is None or found[:2] > worst[:2]):
            worst = found
    return worst


def _amount(state: ClusterQueueState, cell: Cell, need: int) -> Finding | None:
    """Why *need* does not fit into *cell*, None if it does."""
    if need > cell.potential:
        made = reason(
            ReasonCode.EXCEEDS_MAX_QUOTA,
            need=need,
            resource=cell.fr.resource,
            flavor=cell.fr.flavor,
            cluster_queue=state.name,
            max=cell.potential,
        )
        return Finding(_TOO_LARGE, (need - cell.potential) / need, made)
    if need <= 0 or need <= available(cell):
        return None
    node, short = _binding(cell, need)
    return Finding(_WAITS, short / need, _shortage(state, cell, node, short))


def _binding(cell: Cell, need: int) -> tuple[Cell, int]:
    """The cell on the way up that lets through least, and what it lacks."""
    best: tuple[Cell, int] | None = None
    kept = 0
    here: Cell = cell
    while True:
        if here.parent is None:
            free = UNLIMITED if here.subtree == UNLIMITED else kept + here.subtree - here.usage
            if best is None or need - free > best[1]:
                best = (here, need - free)
            return best
        kept += max(0, here.local - here.usage)
        if here.cap is not None and here.cap != UNLIMITED:
            short = need - (kept + here.cap - max(0, here.usage - here.local))
            if short > 0 and (best is None or short > best[1]):
                best = (here, short)
        here = here.parent


def _shortage(state: ClusterQueueState, cell: Cell, node: Cell, short: int) -> Reason:
    """What is short at *node*, the binding cell above *cell*."""
    kind = {"resource": cell.fr.resource, "flavor": cell.fr.flavor}
    if node.node is cell.node and (node.parent is None or not node.limit):
        return reason(
            ReasonCode.QUOTA_USED, cluster_queue=state.name, used=cell.usage, nominal=cell.nominal, short=short, **kind
        )
    if node.parent is not None:
        return reason(
            ReasonCode.BORROWING_LIMIT,
            node=node.node.name,
            borrowed=max(0, node.usage - node.subtree),
            limit=node.limit or 0,
            short=short,
            **kind,
        )
    keepers = [keeper for keeper in _keepers(cell) if keeper.local > keeper.usage]
    idle = sum(keeper.local - keeper.usage for keeper in keepers)
    if keepers and idle >= short:
        names = ", ".join(sorted(keeper.node.name for keeper in keepers)[:3])
        return reason(ReasonCode.LENDING_LIMIT, short=short, idle=idle, queues=names, **kind)
    return reason(
        ReasonCode.COHORT_EXHAUSTED, node=node.node.name, quota=node.subtree, used=node.usage, short=short, **kind
    )


def _keepers(cell: Cell) -> list[Cell]:
    """Cells elsewhere in the tree that keep quota to themselves."""
    tree = cell.node.tree
    assert tree is not None
    own = {cell.node, *cell.node.path()}
    return [keeper for keeper in tree.keepers.get(cell.fr, ()) if keeper.node not in own]


def _behind(state: ClusterQueueState, pending: Pending) -> Reason | None:
    """It would fit: who stands before it in its own cluster queue."""
    position = state.pending.position(pending)
    if position == 1:
        return None
    if state.strict:
        first = next(state.pending.in_order())
        return reason(
            ReasonCode.BEHIND_STRICT_HEAD, position=position, cluster_queue=state.name, head=first.workload.name
        )
    return reason(ReasonCode.BEHIND_PRIORITY, ahead=position - 1, priority=pending.workload.priority)


def _held(state: ClusterQueueState, pending: Pending, plan: Plan) -> Reason | None:
    """It would fit: for whom the room is kept."""
    tree = state.leaf.tree
    assert tree is not None
    wanted = {
        cell.fr for part in plan.pod_sets for group in part.groups for choice in group.choices for cell in choice.cells
    }
    for fr, amount, uid in tree.reserved:
        if fr in wanted and uid != pending.workload.uid and amount > 0:
            return reason(
                ReasonCode.RESERVED_FOR_PREEMPTOR, amount=amount, resource=fr.resource, flavor=fr.flavor, preemptor=uid
            )
    return None
