"""Laws of the ledger: it agrees with the plain formulas after every charge, and removing undoes adding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.engine import ledger
from extender.engine.hierarchy import Cell, Charge, Hierarchy, Leaf, Node
from extender.model.names import ClusterQueueName, FlavorResource
from extender.model.workload import Admission
from tests.laws.build import FLAVORS, LAW, Asked, World, asked, workload, worlds
from tests.laws.chain import chain
from tests.sim.plain import Node as PlainNode
from tests.sim.plain import PlainQuota

Numbers = dict[tuple[str, FlavorResource], tuple[int, int, int, int]]


def settled(world: World) -> Hierarchy:
    """The tree of *world* with all numbers worked out."""
    hierarchy = Hierarchy()
    for cohort in world.cohorts:
        hierarchy.set_cohort(cohort)
    for queue in world.queues:
        hierarchy.set_cluster_queue(queue)
    hierarchy.settle(ledger.compute)
    return hierarchy


def numbers(hierarchy: Hierarchy) -> Numbers:
    """Subtree quota, local quota, usage and available of every cell."""
    nodes: list[Node] = [*hierarchy.cohorts.values(), *hierarchy.leaves.values()]
    return {
        (node.name, fr): (cell.subtree, cell.local, cell.usage, ledger.available(cell))
        for node in nodes
        for fr, cell in node.cells.items()
    }


def charge_of(world: World, hierarchy: Hierarchy, number: int, wanted: Asked, flavor: int) -> Charge:
    """*wanted* as a charge, on the flavor of that number if its queue has it, else on the first."""
    made = workload(world, number, wanted)
    leaf = hierarchy.leaves[ClusterQueueName(made.queue.name)]
    assert leaf.spec is not None
    names = [quotas.flavor for quotas in leaf.spec.resource_groups[0].flavors]
    name = names[flavor % len(names)]
    usage = tuple((leaf.cell(FlavorResource(name, resource)), amount) for resource, amount in made.pod_sets[0].requests)
    return Charge(made, Admission(ClusterQueueName(leaf.name), (), number), leaf, usage, assumed=False)


def plain(world: World, charges: list[Charge]) -> PlainQuota:
    """The plain model with these charges."""
    used: dict[str, dict[FlavorResource, int]] = {}
    for charge in charges:
        mine = used.setdefault(charge.leaf.name, {})
        for cell, amount in charge.usage:
            mine[cell.fr] = mine.get(cell.fr, 0) + amount
    return PlainQuota(world.cohorts, world.queues, used)


charges = st.lists(st.tuples(asked, st.integers(0, len(FLAVORS) - 1)), min_size=1, max_size=8)


@LAW
@given(worlds(), charges)
def test_every_number_agrees_with_the_formulas_after_every_charge(
    world: World, wanted: list[tuple[Asked, int]]
) -> None:
    hierarchy = settled(world)
    charged: list[Charge] = []
    for number, (one, flavor) in enumerate(wanted):
        charged.append(charge_of(world, hierarchy, number, one, flavor))
        ledger.charge(charged[-1])
        want = plain(world, charged)

        for node in (*hierarchy.cohorts.values(), *hierarchy.leaves.values()):
            there = PlainNode("cq" if isinstance(node, Leaf) else "cohort", node.name)
            for fr, cell in node.cells.items():
                assert _numbers(cell) == _plain_numbers(want, there, fr), f"{node.name} {fr}"


def _numbers(cell: Cell) -> tuple[int, int, int, int]:
    return cell.subtree, cell.local, cell.usage, ledger.available(cell)


def _plain_numbers(want: PlainQuota, there: PlainNode, fr: FlavorResource) -> tuple[int, int, int, int]:
    return want.subtree(there, fr), want.local(there, fr), want.usage(there, fr), want.available(there, fr)


@LAW
@given(worlds(), charges, st.randoms(use_true_random=False))
def test_removing_in_any_order_undoes_adding(world: World, wanted: list[tuple[Asked, int]], random) -> None:
    hierarchy = settled(world)
    charged = [charge_of(world, hierarchy, number, one, flavor) for number, (one, flavor) in enumerate(wanted)]
    before = numbers(hierarchy)
    for charge in charged:
        ledger.charge(charge)
    random.shuffle(charged)
    for charge in charged:
        ledger.release(charge)

    assert numbers(hierarchy) == before


@LAW
@given(worlds(), charges)
def test_a_charge_taken_back_leaves_no_trace_whatever_else_is_charged(
    world: World, wanted: list[tuple[Asked, int]]
) -> None:
    hierarchy = settled(world)
    charged = [charge_of(world, hierarchy, number, one, flavor) for number, (one, flavor) in enumerate(wanted)]
    *others, trial = charged
    for charge in others:
        ledger.charge(charge)
    before = numbers(hierarchy)
    ledger.add_all(trial.usage)
    ledger.remove_all(trial.usage)
    for charge in reversed(others):
        ledger.remove_all(charge.usage)
    for charge in others:
        ledger.add_all(charge.usage)

    assert numbers(hierarchy) == before


@LAW
@given(worlds(), charges)
def test_numbers_worked_out_anew_are_those_kept_along_the_way(world: World, wanted: list[tuple[Asked, int]]) -> None:
    hierarchy = settled(world)
    for number, (one, flavor) in enumerate(wanted):
        ledger.charge(charge_of(world, hierarchy, number, one, flavor))
    kept = numbers(hierarchy)
    for leaf in hierarchy.leaves.values():
        hierarchy.touch(leaf)
    hierarchy.settle(ledger.compute)

    assert numbers(hierarchy) == kept


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_what_fits_in_the_formulas_fits_in_the_ledger(depth: int) -> None:
    """The chain queue → cohort → … → root with a lending limit at every level, probed around its edge."""
    world = chain(depth)
    hierarchy = settled(world)
    probe = workload(world, 0, Asked(0, 1, 0, 0, 0))
    leaf = hierarchy.leaves[ClusterQueueName(probe.queue.name)]
    fr = next(iter(leaf.quotas))
    edge = PlainQuota(world.cohorts, world.queues, {}).available(PlainNode("cq", leaf.name), fr)
    fitting = [amount for amount in range(edge + 3) if ledger.fits([(leaf.cell(fr), amount)])]

    assert fitting == list(range(edge + 1))
