"""Oracle cases as facts: turns a scenario into the engine's events."""

from collections.abc import Iterator
from typing import Any

from extender.model.amounts import parse_quantity, quota_amount, request_amount
from extender.model.events import (
    ClusterQueueSeen,
    CohortSeen,
    EngineEvent,
    FlavorSeen,
    LocalQueueSeen,
    NamespaceSeen,
    WorkloadSeen,
)
from extender.model.names import (
    ClusterQueueName,
    CohortName,
    FlavorName,
    LocalQueueKey,
    LocalQueueName,
    Namespace,
    ResourceName,
    WorkloadUid,
)
from extender.model.quota import (
    ClusterQueue,
    Cohort,
    FairWeight,
    FlavorQuotas,
    Fungibility,
    LocalQueue,
    Preemption,
    PreemptionPolicy,
    Preference,
    QueueingStrategy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Selector,
    Taint,
    Toleration,
)
from extender.model.workload import Admission, PodSet, PodSetAssignment, Workload

Json = dict[str, Any]
NAMESPACE = Namespace("default")


def facts(scenario: Json) -> Iterator[EngineEvent]:
    """The events that set a scenario up."""
    yield NamespaceSeen(NAMESPACE, ())
    for spec in scenario["flavors"]:
        yield FlavorSeen(_flavor(spec))
    for spec in scenario["cohorts"]:
        yield CohortSeen(_cohort(spec))
    for spec in scenario["clusterQueues"]:
        cluster_queue = _cluster_queue(spec)
        yield ClusterQueueSeen(cluster_queue)
        yield LocalQueueSeen(LocalQueue(NAMESPACE, LocalQueueName(cluster_queue.name), cluster_queue.name))
    for short in scenario["workloads"]:
        yield WorkloadSeen(workload(short))


def _flavor(obj: Json) -> ResourceFlavor:
    spec = obj.get("spec") or {}
    return ResourceFlavor(
        FlavorName(obj["metadata"]["name"]),
        node_labels=tuple(sorted((spec.get("nodeLabels") or {}).items())),
        node_taints=tuple(
            Taint(taint["key"], taint.get("value", ""), taint["effect"]) for taint in spec.get("nodeTaints") or ()
        ),
        tolerations=tuple(_toleration(one) for one in spec.get("tolerations") or ()),
    )


def _toleration(obj: Json) -> Toleration:
    return Toleration(obj.get("key", ""), obj.get("operator") or "Equal", obj.get("value", ""), obj.get("effect", ""))


def _groups(spec: Json) -> tuple[ResourceGroup, ...]:
    return tuple(
        ResourceGroup(
            tuple(ResourceName(name) for name in group["coveredResources"]),
            tuple(
                FlavorQuotas(FlavorName(flavor["name"]), tuple(_quota(resource) for resource in flavor["resources"]))
                for flavor in group["flavors"]
            ),
        )
        for group in spec.get("resourceGroups") or ()
    )


def _quota(obj: Json) -> tuple[ResourceName, Quota]:
    resource = ResourceName(obj["name"])
    limits = [
        None if obj.get(key) is None else quota_amount(obj[key], resource) for key in ("borrowingLimit", "lendingLimit")
    ]
    return resource, Quota(quota_amount(obj["nominalQuota"], resource), *limits)


def _weight(spec: Json) -> FairWeight:
    return FairWeight(float(parse_quantity((spec.get("fairSharing") or {}).get("weight") or "1")))


def _cohort(obj: Json) -> Cohort:
    spec = obj.get("spec") or {}
    parent = spec.get("parentName")
    return Cohort(
        CohortName(obj["metadata"]["name"]),
        parent=CohortName(parent) if parent else None,
        resource_groups=_groups(spec),
        weight=_weight(spec),
    )


def _cluster_queue(obj: Json) -> ClusterQueue:
    spec = obj["spec"]
    cohort = spec.get("cohortName")
    fungibility = spec.get("flavorFungibility") or {}
    preemption = spec.get("preemption") or {}
    borrow = preemption.get("borrowWithinCohort") or {}
    return ClusterQueue(
        ClusterQueueName(obj["metadata"]["name"]),
        cohort=CohortName(cohort) if cohort else None,
        resource_groups=_groups(spec),
        strategy=QueueingStrategy(spec.get("queueingStrategy") or "BestEffortFIFO"),
        namespace_selector=Selector(),
        fungibility=Fungibility(
            next_when_borrowing=fungibility.get("whenCanBorrow") == "TryNextFlavor",
            next_when_preempting=fungibility.get("whenCanPreempt", "TryNextFlavor") == "TryNextFlavor",
            preference=Preference(fungibility.get("preference") or "BorrowingOverPreemption"),
        ),
        preemption=Preemption(
            within_cluster_queue=PreemptionPolicy(preemption.get("withinClusterQueue") or "Never"),
            reclaim_within_cohort=PreemptionPolicy(preemption.get("reclaimWithinCohort") or "Never"),
            borrow_within_cohort=PreemptionPolicy(borrow.get("policy") or "Never"),
            priority_threshold_max=borrow.get("maxPriorityThreshold"),
        ),
        weight=_weight(spec),
    )


def workload(short: Json) -> Workload:
    """A workload of a scenario; its name is its UID."""
    requests = {
        ResourceName(name): request_amount(parse_quantity(amount), ResourceName(name))
        for name, amount in sorted(short["requests"].items())
    }
    pod_set = PodSet(
        "main",
        short["count"],
        tuple(requests.items()),
        count_min=short.get("minCount"),
        node_selector=tuple(sorted((short.get("nodeSelector") or {}).items())),
        tolerations=tuple(_toleration(one) for one in short.get("tolerations") or ()),
    )
    admitted = short.get("admitted")
    return Workload(
        WorkloadUid(short["name"]),
        short["name"],
        LocalQueueKey(NAMESPACE, LocalQueueName(short["clusterQueue"])),
        short["created"] * 1000,
        (pod_set,),
        priority=short["priority"],
        admission=None if admitted is None else _admission(short, pod_set, admitted),
    )


def _admission(short: Json, pod_set: PodSet, admitted: Json) -> Admission:
    count = admitted.get("count") or pod_set.count
    usage = tuple(
        (resource, amount * count) for resource, amount in pod_set.requests if resource in admitted["flavors"]
    )
    flavors = tuple((ResourceName(resource), FlavorName(name)) for resource, name in admitted["flavors"].items())
    assignment = PodSetAssignment(pod_set.name, flavors, usage, count)
    return Admission(ClusterQueueName(short["clusterQueue"]), (assignment,), admitted["at"] * 1000)
