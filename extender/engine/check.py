"""Recomputes everything from scratch and says what is wrong. Nothing ever should be."""

from collections.abc import Iterable, Iterator

from extender.engine.fork import fork
from extender.engine.hierarchy import Cell, Leaf, Tree
from extender.engine.state import ClusterQueueState
from extender.engine.world import World
from extender.model.amounts import UNLIMITED
from extender.model.names import ClusterQueueName

SPOT_MAX = 1_000
"""How many workloads of a queue a spot check looks at most, about a millisecond's worth; at more it does not look."""
_NUMBERS = ("nominal", "cap", "subtree", "local", "usage", "potential", "bounded")


def violations(world: World) -> list[str]:
    """The invariants of docs/engine.md that do not hold, as sentences. Cost: O(everything)."""
    world.settle()
    return [
        *_sums(world.hierarchy.leaves.values()),
        *_numbers(world),
        *_over_quota(world),
        *(problem for state in world.states.values() for problem in _line(state)),
        *_places(world),
    ]


def spot_check(world: World, name: ClusterQueueName) -> list[tuple[str, str]]:
    """What does not hold of one cluster queue and of its tree: the invariant's name and a sentence.

    Made to be asked between two passes, of one queue after the other. Cost: O(its workloads, bounded + its tree).
    """
    state = world.states.get(name)
    if state is None:
        return []
    world.settle()
    found = []
    if len(state.leaf.charges) <= SPOT_MAX:
        found += [("usage_is_the_sum", problem) for problem in _sums([state.leaf])]
    if state.pending.active + state.pending.parked <= SPOT_MAX:
        found += [("line_in_order", problem) for problem in _line(state)]
    if state.leaf.tree is not None and world.policy.victims_hold_room:
        found += [("within_quota", problem) for problem in _over(state.leaf.tree)]
    return found


def _sums(leaves: Iterable[Leaf]) -> Iterator[str]:
    """The usage of a cluster queue is the sum of its charges."""
    for leaf in leaves:
        sums = dict.fromkeys(leaf.cells, 0)
        for charge in leaf.charges.values():
            for cell, amount in charge.usage:
                sums[cell.fr] = sums.get(cell.fr, 0) + amount
        for fr, want in sums.items():
            have = leaf.cells[fr].usage if fr in leaf.cells else 0
            if have != want:
                yield f"{leaf.name} uses {have} of {fr}, its workloads {want}"
        if [key for key, _ in leaf.ranked] != sorted(charge.rank() for charge in leaf.charges.values()):
            yield f"the workloads of {leaf.name} are not in the order of victims"


def _numbers(world: World) -> Iterator[str]:
    """What was kept up to date equals what is computed anew."""
    fresh = fork(world)
    for node in (*fresh.hierarchy.cohorts.values(), *fresh.hierarchy.leaves.values()):
        fresh.hierarchy.touch(node)
    fresh.settle()
    pairs = [(node, fresh.hierarchy.cohorts[name]) for name, node in world.hierarchy.cohorts.items()]
    leaves = [(leaf, fresh.hierarchy.leaves[name]) for name, leaf in world.hierarchy.leaves.items()]
    for old, new in (*pairs, *leaves):
        if old.height != new.height:
            yield f"{old.name} has height {old.height}, not {new.height}"
        for fr in old.cells.keys() | new.cells.keys():
            have, want = _cell(old.cells.get(fr)), _cell(new.cells.get(fr))
            if have != want:
                yield f"{old.name} has {have} for {fr}, not {want}"


def _cell(cell: Cell | None) -> dict[str, object] | None:
    if cell is None or not (cell.usage or cell.declared):
        return None
    return {field: getattr(cell, field) for field in _NUMBERS}


def _over_quota(world: World) -> Iterator[str]:
    """Decisions never take a tree above its quota, victims counted until they are gone."""
    if not world.policy.victims_hold_room:
        return
    for tree in _trees(world):
        yield from _over(tree)


def _over(tree: Tree) -> Iterator[str]:
    over = [cell for member in tree.members for cell in member.cells.values() if _exceeds(cell)]
    if over and not tree.excused:
        yield from (f"{cell.node.name} uses {cell.usage} of {cell.fr}, more than it may" for cell in over)
    tree.excused = bool(over)


def _exceeds(cell: Cell) -> bool:
    if cell.subtree == UNLIMITED:
        return False
    if cell.parent is None:
        return cell.usage > cell.subtree
    return cell.cap is not None and max(0, cell.usage - cell.local) > cell.cap


def _line(state: ClusterQueueState) -> Iterator[str]:
    """Counts are right, and nothing that may be tried is forgotten."""
    line = state.pending
    parked = sum(len(bucket.members) for bucket in line.buckets.values() if bucket.parked)
    active = sum(len(bucket.members) for bucket in line.buckets.values() if not bucket.parked)
    if (line.active, line.parked) != (active, parked):
        yield f"{state.name} counts {line.active} active and {line.parked} parked, not {active} and {parked}"
    tree = state.leaf.tree
    assert tree is not None
    if active and state.leaf.active and state.name not in tree.ready:
        yield f"{state.name} has active workloads but no head is taken from it"
    if parked and state.leaf.active and state.name not in tree.parked:
        yield f"{state.name} has parked workloads that nothing would wake"
    order = [pending.key for pending in line.in_order() if pending is not line.sticky]
    if order != sorted(order):
        yield f"{state.name} is out of order"


def _places(world: World) -> Iterator[str]:
    """Every workload is charged or waits, not both."""
    for uid in world.workloads:
        if (uid in world.charges) == (uid in world.pending):
            yield f"{uid} is neither charged nor waiting, or both"
    strays = (world.charges.keys() | world.pending.keys()) - world.workloads.keys()
    yield from (f"{uid} is in a place but not known" for uid in strays)
    for tree in _trees(world):
        for name in tree.holders:
            hold = world.states[name].hold
            if hold is None or hold.pending.bucket is None:
                yield f"room is held in {name} for nobody"


def _trees(world: World) -> list[Tree]:
    leaves: list[Leaf] = list(world.hierarchy.leaves.values())
    return list(dict.fromkeys(leaf.tree for leaf in leaves if leaf.tree is not None))
