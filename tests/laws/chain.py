"""A chain of cohorts over one queue, each with quota and limits of its own."""

from extender.model.names import CPU, ClusterQueueName, CohortName
from extender.model.quota import ClusterQueue, Cohort, FlavorQuotas, Quota, ResourceGroup, Selector
from tests.laws.build import FLAVORS, World


def _groups(nominal: int, borrows: int | None, lends: int | None) -> tuple[ResourceGroup, ...]:
    return (ResourceGroup((CPU,), (FlavorQuotas(FLAVORS[0], ((CPU, Quota(nominal, borrows, lends)),)),)),)


def chain(levels: int) -> World:
    """*levels* nodes in a row: the lowest is a cluster queue, the uppermost the root."""
    cohorts = []
    for level in range(1, levels):
        root = level == levels - 1
        groups = _groups(level, None if root else 10, None if root else 3)
        parent = None if root else CohortName(f"level{level + 1}")
        cohorts.append(Cohort(CohortName(f"level{level}"), parent=parent, resource_groups=groups))
    alone = levels == 1
    queue = ClusterQueue(
        ClusterQueueName("queue0"),
        cohort=None if alone else CohortName("level1"),
        resource_groups=_groups(4, None if alone else 5, None if alone else 2),
        namespace_selector=Selector(),
    )
    return World(tuple(cohorts), (queue,))
