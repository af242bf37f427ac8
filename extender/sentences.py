"""What is said about an eviction: who needs the room, by which rule, and the numbers, in one sentence."""

from extender.engine.engine import Engine
from extender.model.amounts import format_amount
from extender.model.effects import Evict, EvictionReason
from extender.model.names import ClusterQueueName, CohortName, FlavorResource, WorkloadUid
from extender.model.workload import Admission
from extender.pods.books import Books

DEPTH_MAX = 64
_RULES = {
    EvictionReason.IN_CLUSTER_QUEUE: "goes before it in the same ClusterQueue",
    EvictionReason.IN_COHORT_RECLAMATION: "takes back quota that was lent",
    EvictionReason.IN_COHORT_FAIR_SHARING: "has the smaller fair share",
    EvictionReason.IN_COHORT_RECLAIM_WHILE_BORROWING: "borrows too, with the higher priority",
}


def cluster_queue_of(uid: WorkloadUid, engine: Engine, books: Books) -> str:
    """The ClusterQueue in which *uid* holds quota or waits for it, empty if it is not known."""
    admission = engine.admission_of(uid)
    if admission is not None:
        return admission.cluster_queue
    workload = engine.workload(uid)
    queue = books.cluster_queue_of(workload.queue) if workload else None
    return queue.name if queue else ""


def path_of(name: str, engine: Engine) -> str:
    """The way from the root of the tree to a ClusterQueue, such as ``/hospital/research/training-cq``."""
    try:
        above = engine.view(ClusterQueueName(name)).cohort
    except KeyError:
        return f"/{name}"
    names = [name]
    while above is not None and above not in names and len(names) < DEPTH_MAX:
        names.append(above)
        above = engine.cohort_view(CohortName(above)).parent
    return "/" + "/".join(reversed(names))


def amounts(admission: Admission) -> str:
    """What an admission holds, such as ``8 nvidia.com/gpu of a100, 16 cpu of any-node``."""
    total: dict[FlavorResource, int] = {}
    for given in admission.assignments:
        used = dict(given.usage)
        for resource, flavor in given.flavors:
            fr = FlavorResource(flavor, resource)
            total[fr] = total.get(fr, 0) + used.get(resource, 0)
    listed = (f"{format_amount(amount, fr.resource)} {fr.resource} of {fr.flavor}" for fr, amount in total.items())
    return ", ".join(listed) or "nothing"


def eviction(evict: Evict, engine: Engine, books: Books) -> str:
    """Why a workload is told to stop. The engine's own words do for a stopped queue."""
    admission = engine.admission_of(evict.uid)
    if evict.preemptor is None or admission is None:
        return evict.message
    winner, loser = engine.workload(evict.preemptor), engine.workload(evict.uid)
    queue = cluster_queue_of(evict.preemptor, engine, books)
    name = winner.name if winner else evict.preemptor
    said = (
        f"makes room for {name} (UID {evict.preemptor}), which {_RULES[evict.reason]}: gives back {amounts(admission)}"
    )
    if winner and loser:
        said += f"; priority {winner.priority} against {loser.priority}"
    if evict.reason is EvictionReason.IN_COHORT_FAIR_SHARING:
        said += f"; {_shares(queue, admission.cluster_queue, engine)}"
    return (
        f"{said}; preemptor path: {path_of(queue, engine)}; preemptee path: {path_of(admission.cluster_queue, engine)}"
    )


def _shares(queue: str, other: str, engine: Engine) -> str:
    """The two shares that were compared: of the nodes just below the lowest cohort above both queues."""
    mine, theirs = path_of(queue, engine).split("/"), path_of(other, engine).split("/")
    meeting = next((depth for depth, (one, two) in enumerate(zip(mine, theirs, strict=False)) if one != two), None)
    if meeting is None:
        return "weighted shares unknown"
    sides = mine[meeting], theirs[meeting]
    return "weighted shares now: " + " and ".join(f"{side} {_share(side, engine)}" for side in sides)


def _share(name: str, engine: Engine) -> str:
    try:
        if name in engine.cohort_names():
            return str(engine.cohort_view(CohortName(name)).weighted_share)
        return str(engine.view(ClusterQueueName(name)).weighted_share)
    except KeyError:
        return "unknown"
