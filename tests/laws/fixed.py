"""Worlds from a seed, for laws that must build the same one in several processes."""

from random import Random

from extender.model.events import (
    ClusterQueueSeen,
    CohortSeen,
    EngineEvent,
    FlavorSeen,
    LocalQueueSeen,
    NamespaceSeen,
    WorkloadSeen,
)
from extender.model.names import LocalQueueKey, LocalQueueName, WorkloadUid
from extender.model.quota import ClusterQueue, Cohort, LocalQueue, ResourceFlavor
from extender.model.workload import PodSet, Workload
from tests.sim.api import Api
from tests.sim.cluster import NAMESPACE, Cluster


def fixed_facts(seed: int) -> list[EngineEvent]:
    """The simulator's world of *seed* with 30 workloads that wait."""
    rng = Random(seed)
    api = Api()
    cluster = Cluster(api, rng)
    cluster.build()
    facts: list[EngineEvent] = [NamespaceSeen(NAMESPACE, ())]
    for kind in ("flavor", "cohort", "queue", "local"):
        for record in api.objects[kind].values():
            match record:
                case ResourceFlavor():
                    facts.append(FlavorSeen(record))
                case Cohort():
                    facts.append(CohortSeen(record))
                case ClusterQueue():
                    facts.append(ClusterQueueSeen(record))
                case LocalQueue():
                    facts.append(LocalQueueSeen(record))
    for number in range(30):
        requests = tuple(sorted((resource, rng.randint(1, 3) * 1000) for resource in cluster.resources))
        facts.append(
            WorkloadSeen(
                Workload(
                    uid=WorkloadUid(f"{rng.getrandbits(32):08x}"),
                    name=f"w{number}",
                    queue=LocalQueueKey(NAMESPACE, LocalQueueName(rng.choice(cluster.queues))),
                    created_ms=rng.choice((1_000, 2_000)),
                    pod_sets=(PodSet("main", 1, requests),),
                    priority=rng.choice((0, 0, 1)),
                )
            )
        )
    return facts
