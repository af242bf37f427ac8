"""The cluster that the filter benchmark asks about: 5,000 nodes, one admitted pod, and pods that it may push away."""

from typing import Any

import orjson

from extender.engine.engine import Engine
from extender.model.events import (
    ClusterQueueSeen,
    Event,
    FlavorSeen,
    LocalQueueSeen,
    NamespaceSeen,
    NodeSeen,
    PodSeen,
)
from extender.model.names import (
    ClusterQueueName,
    CohortName,
    FlavorName,
    LocalQueueName,
    Namespace,
    NodeName,
    PodUid,
    ResourceName,
)
from extender.model.pods import ADMISSION_ANNOTATION, Node, Pod
from extender.model.policy import Policy
from extender.model.quota import (
    ClusterQueue,
    FlavorQuotas,
    LocalQueue,
    Preemption,
    PreemptionPolicy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Selector,
)
from extender.model.workload import Admission, PodSetAssignment
from extender.pods.admission import write_admission
from extender.pods.books import Books
from tests.support.objects import pod_json

NODES = 5_000
UNFIT_EVERY = 10
CANDIDATES = 100
VICTIMS_EACH = 4
GPUS_EACH = 8
GPU = ResourceName("nvidia.com/gpu")
FLAVOR = FlavorName("a100")
LABELS = (("gpu", "a100"),)
NAMESPACE = Namespace("research")
UID = PodUid("6f0c2a4e-0a2b-4a38-9d6d-0c8f2b6d1a11")
NAME_LENGTH = 44


def node_names() -> list[str]:
    """All nodes, with names as long as those of a cloud."""
    names = [f"gke-production-europe-gpu-pool-a100-{number:04}-7kx" for number in range(NODES)]
    assert {len(name) for name in names} == {NAME_LENGTH}
    return names


def fits(number: int) -> bool:
    """Whether the node of that number is of the admitted flavor."""
    return number % UNFIT_EVERY != 0


def admission(uid: str) -> str:
    """One GPU for the pod *uid*."""
    assignment = PodSetAssignment("main", ((GPU, FLAVOR),), ((GPU, 1),), 1)
    return write_admission(PodUid(uid), "main", Admission(ClusterQueueName("lab-cq"), (assignment,), 5_000))


def question_pod() -> dict[str, Any]:
    """The pod as kube-scheduler sends it: without managedFields, about 3 KB."""
    pod = pod_json(uid=UID, namespace=NAMESPACE)
    del pod["metadata"]["managedFields"], pod["kind"], pod["apiVersion"], pod["spec"]["schedulingGates"]
    pod["metadata"]["annotations"][ADMISSION_ANNOTATION] = admission(UID)
    pod["spec"]["nodeSelector"] = dict(LABELS)
    return pod


def filter_body(names: list[str]) -> bytes:
    """The request of filter and prioritize."""
    return orjson.dumps({"Pod": question_pod(), "Nodes": None, "NodeNames": names})


def victim(node: int, number: int) -> str:
    """The UID of one of the pods on a candidate node."""
    return f"0b7f0a4d-3a11-4f0e-9d58-{node:06}{number:06}"


def preempt_body(names: list[str]) -> bytes:
    """The request of preempt, about the first candidate nodes."""
    victims = {
        names[node]: {"Pods": [{"UID": victim(node, n)} for n in range(VICTIMS_EACH)], "NumPDBViolations": 0}
        for node in range(CANDIDATES)
    }
    return orjson.dumps({"Pod": question_pod(), "NodeNameToVictims": None, "NodeNameToMetaVictims": victims})


def known() -> tuple[Books, Engine]:
    """Books and engine that know the cluster: the pod is admitted and owns what the victims have borrowed."""
    books, engine = Books(), Engine(Policy())
    for event in _facts():
        for told in books.apply(event):
            engine.apply(told)
    engine.run_pass(1)
    return books, engine


def _facts() -> list[Event]:
    reclaim = Preemption(
        within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY, reclaim_within_cohort=PreemptionPolicy.ANY
    )
    facts: list[Event] = [FlavorSeen(ResourceFlavor(FLAVOR, LABELS)), NamespaceSeen(NAMESPACE, ())]
    for queue, nominal in (("lab", NODES * GPUS_EACH), ("guests", 0)):
        name = ClusterQueueName(f"{queue}-cq")
        groups = (ResourceGroup((GPU,), (FlavorQuotas(FLAVOR, ((GPU, Quota(nominal)),)),)),)
        facts.append(
            ClusterQueueSeen(
                ClusterQueue(
                    name,
                    cohort=CohortName("all"),
                    resource_groups=groups,
                    namespace_selector=Selector(),
                    preemption=reclaim,
                )
            )
        )
        facts.append(LocalQueueSeen(LocalQueue(NAMESPACE, LocalQueueName(queue), name)))
    for number, name in enumerate(node_names()):
        labels = (*LABELS, ("kubernetes.io/hostname", name)) if fits(number) else ()
        facts.append(NodeSeen(Node(NodeName(name), labels, allocatable=((GPU, GPUS_EACH),))))
    facts.append(PodSeen(_pod(UID, queue="lab", node=None)))
    for node, name in enumerate(node_names()[:CANDIDATES]):
        facts += [PodSeen(_pod(victim(node, n), queue="guests", node=NodeName(name))) for n in range(VICTIMS_EACH)]
    return facts


def _pod(uid: str, *, queue: str, node: NodeName | None) -> Pod:
    assignment = PodSetAssignment("main", ((GPU, FLAVOR),), ((GPU, 1),), 1)
    held = Admission(ClusterQueueName(f"{queue}-cq"), (assignment,), 5_000)
    return Pod(
        uid=PodUid(uid),
        namespace=NAMESPACE,
        name=f"pod-{uid[-12:]}",
        resource_version="7",
        created_ms=1_000,
        queue=LocalQueueName(queue),
        requests=((GPU, 1),),
        managed=True,
        admission=write_admission(PodUid(uid), "main", held),
        node=node,
        phase="Pending" if node is None else "Running",
        priority=100 if node is None else 0,
    )
