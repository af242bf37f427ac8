"""Whether quota rules let one running workload be pushed away for another that kube-scheduler wants to place.

The preemptor is admitted: its quota is charged already, so the question is only who may lose a *node* to it. The
policies of its cluster queue answer as they do for quota: its own queue by ``withinClusterQueue``, others of its tree
by ``reclaimWithinCohort`` while they use more than their own. Workloads of another tree are never its business.
"""

from extender.engine.hierarchy import Charge
from extender.engine.world import World
from extender.model.names import WorkloadUid
from extender.model.quota import Preemption, PreemptionPolicy


def may_preempt(world: World, preemptor: WorkloadUid, victim: WorkloadUid) -> bool:
    """Whether *victim* may be pushed away for *preemptor*; one that holds no quota or is leaving is not protected."""
    taken = world.charges.get(victim)
    if taken is None or taken.evicted:
        return True
    taker = world.charges.get(preemptor)
    if taker is None or taker.leaf.spec is None:
        return False
    policies: Preemption = taker.leaf.spec.preemption
    if taken.leaf is taker.leaf:
        return _allows(policies.within_cluster_queue, taker, taken)
    if taken.leaf.tree is not taker.leaf.tree or not _borrows(taken):
        return False
    return _allows(policies.reclaim_within_cohort, taker, taken)


def _borrows(charge: Charge) -> bool:
    return any(cell.usage > cell.nominal for cell, amount in charge.usage if amount > 0)


def _allows(policy: PreemptionPolicy, taker: Charge, taken: Charge) -> bool:
    mine, theirs = taker.workload, taken.workload
    if policy is PreemptionPolicy.ANY:
        return True
    if policy is PreemptionPolicy.NEVER or mine.priority < theirs.priority:
        return False
    if mine.priority > theirs.priority:
        return True
    return policy is PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY and mine.created_ms < theirs.created_ms
