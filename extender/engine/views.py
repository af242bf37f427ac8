"""Read-only answers about queues, cohorts and the tree, as plain records: for status, metrics, commands and tests."""

import msgspec

from extender.engine.explain import standing
from extender.engine.hierarchy import CohortNode, Leaf, Node, Tree
from extender.engine.shares import share
from extender.engine.world import World
from extender.model.names import ClusterQueueName, CohortName, FlavorName, ResourceName, WorkloadUid
from extender.model.reasons import Reason
from extender.model.workload import Workload


class UsageView(msgspec.Struct, frozen=True):
    """One flavor-resource of a cluster queue. ``borrowed`` is what is used above nominal, 0 outside of a cohort."""

    flavor: FlavorName
    resource: ResourceName
    nominal: int
    used: int
    borrowed: int


class ClusterQueueView(msgspec.Struct, frozen=True):
    """A cluster queue as it stands. ``reason`` is None while it is active.

    ``pending_inadmissible`` are those that were tried in vain or are kept out of line; ``reserving`` hold quota.
    ``share`` is exact and infinite for weight 0 while borrowing, ``weighted_share`` is what a status says.
    """

    name: ClusterQueueName
    cohort: CohortName | None
    active: bool
    reason: Reason | None
    pending_active: int
    pending_inadmissible: int
    reserving: int
    usage: tuple[UsageView, ...]
    share: float
    weighted_share: int


class CohortUsageView(msgspec.Struct, frozen=True):
    """One flavor-resource of a cohort: what it and its children bring, and what the children use of it."""

    flavor: FlavorName
    resource: ResourceName
    nominal: int
    subtree: int
    used: int


class CohortView(msgspec.Struct, frozen=True):
    """A cohort as it stands. ``explicit``: there is an object for it. ``cyclic``: nothing is decided in its tree."""

    name: CohortName
    parent: CohortName | None
    explicit: bool
    cyclic: bool
    usage: tuple[CohortUsageView, ...]
    share: float
    weighted_share: int


class TreeView(msgspec.Struct, frozen=True):
    """A cohort with what hangs below it, in order of name; ``cohort`` is None for a cluster queue on its own."""

    cohort: CohortView | None
    cohorts: tuple["TreeView", ...]
    cluster_queues: tuple[ClusterQueueView, ...]


class Waiting(msgspec.Struct, frozen=True):
    """A workload that waits, with its place in line from 1; 0: it is kept out of line."""

    workload: Workload
    position: int
    parked: bool


class Running(msgspec.Struct, frozen=True):
    """A workload that holds quota. ``preemptor``: for whom it was told to stop."""

    workload: Workload
    assumed: bool
    evicted: bool
    preemptor: WorkloadUid | None


def cluster_queue_view(world: World, name: ClusterQueueName) -> ClusterQueueView:
    """The cluster queue *name*. Raises: KeyError, when nothing is known of it."""
    world.settle()
    state = world.states[name]
    leaf, line = state.leaf, state.pending
    _, value = share(leaf)
    return ClusterQueueView(
        name=name,
        cohort=None if leaf.parent is None else CohortName(leaf.parent.name),
        active=leaf.active,
        reason=standing(state),
        pending_active=line.active,
        pending_inadmissible=line.parked + len(line.blocked),
        reserving=len(leaf.charges),
        usage=tuple(
            UsageView(
                fr.flavor,
                fr.resource,
                cell.nominal,
                cell.usage,
                0 if leaf.parent is None else max(0, cell.usage - cell.nominal),
            )
            for fr, cell in sorted(leaf.cells.items())
        ),
        share=value.exact(),
        weighted_share=value.published(),
    )


def cohort_view(world: World, name: CohortName) -> CohortView:
    """The cohort *name*, explicit or not. Raises: KeyError, when nothing names it."""
    world.settle()
    node = world.hierarchy.cohorts[name]
    _, value = share(node)
    return CohortView(
        name=name,
        parent=None if node.parent is None else CohortName(node.parent.name),
        explicit=node.explicit,
        cyclic=node.tree is not None and node.tree.cyclic,
        usage=tuple(
            CohortUsageView(fr.flavor, fr.resource, cell.nominal, cell.subtree, cell.usage)
            for fr, cell in sorted(node.cells.items())
        ),
        share=value.exact(),
        weighted_share=value.published(),
    )


def forest(world: World) -> tuple[TreeView, ...]:
    """Every tree, by name of its root, cohorts before cluster queues without one."""
    world.settle()
    trees = {node.tree for node in (*world.hierarchy.cohorts.values(), *world.hierarchy.leaves.values())}
    roots = sorted(
        (tree for tree in trees if tree is not None), key=lambda tree: (isinstance(tree.root, Leaf), tree.root.name)
    )
    return tuple(_tree(world, tree) for tree in roots)


def _tree(world: World, tree: Tree) -> TreeView:
    return _branch(world, tree.root, set())


def _branch(world: World, node: Node, met: set[Node]) -> TreeView:
    if not isinstance(node, CohortNode):
        return TreeView(None, (), (cluster_queue_view(world, ClusterQueueName(node.name)),))
    met.add(node)
    return TreeView(
        cohort_view(world, CohortName(node.name)),
        tuple(_branch(world, child, met) for _, child in sorted(node.cohorts.items()) if child not in met),
        tuple(cluster_queue_view(world, ClusterQueueName(leaf)) for leaf in sorted(node.leaves)),
    )


def waiting(world: World, name: ClusterQueueName) -> list[Waiting]:
    """What waits in *name*, in order; those kept out of line at the end, by UID. Raises: KeyError, as above."""
    line = world.states[name].pending
    found = [
        Waiting(pending.workload, position, pending.bucket is not None and pending.bucket.parked)
        for position, pending in enumerate(line.in_order(), start=1)
    ]
    return found + [Waiting(line.blocked[uid].workload, 0, parked=True) for uid in sorted(line.blocked)]


def running(world: World, name: ClusterQueueName) -> list[Running]:
    """What holds quota of *name*, in the order in which it would be taken last to first. Raises: KeyError, as above."""
    return [
        Running(charge.workload, charge.assumed, charge.evicted, charge.preemptor)
        for _, charge in reversed(world.states[name].leaf.ranked)
    ]
