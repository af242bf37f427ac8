"""Short forms of the records that the tests of the books need."""

from extender.model.effects import Admit
from extender.model.events import FlavorSeen, NodeSeen
from extender.model.names import (
    ClusterQueueName,
    FlavorName,
    LocalQueueName,
    Namespace,
    NodeName,
    PodUid,
    ResourceName,
    WorkloadUid,
)
from extender.model.pods import GATE, Node, Pod
from extender.model.quota import ResourceFlavor, Toleration
from extender.model.workload import Admission, PodSetAssignment
from extender.pods.books import Books

GPU = ResourceName("nvidia.com/gpu")
A100 = FlavorName("nvidia-a100")
A100_LABELS = (("gpu", "a100"),)


def pod(name: str = "train-0", **changes: object) -> Pod:
    """A gated, managed pod of one GPU in namespace ``research``, with its name as UID."""
    fields: dict[str, object] = {
        "uid": PodUid(name),
        "namespace": Namespace("research"),
        "name": name,
        "resource_version": "7",
        "created_ms": 1_000,
        "queue": LocalQueueName("training"),
        "requests": ((GPU, 1),),
        "gates": (GATE,),
        "managed": True,
    }
    return Pod(**{**fields, **changes})


def admission(*, flavor: str = A100, count: int = 1, name: str = "main") -> Admission:
    """One GPU a pod of *flavor* in ``training-cq``."""
    assignment = PodSetAssignment(name, ((GPU, FlavorName(flavor)),), ((GPU, count),), count)
    return Admission(ClusterQueueName("training-cq"), (assignment,), 5_000)


def admit(uid: str = "train-0") -> Admit:
    """The engine's word that *uid* may start."""
    return Admit(WorkloadUid(uid), admission())


def hospital_books() -> Books:
    """Two a100 nodes of eight GPUs and one other node; flavor ``nvidia-a100`` selects the a100 ones."""
    books = Books()
    tolerations = (Toleration(key="gpu", operator="Exists"),)
    books.apply(FlavorSeen(ResourceFlavor(A100, A100_LABELS, tolerations=tolerations)))
    for name, labels in {"a100-1": A100_LABELS, "a100-2": A100_LABELS, "cpu-1": ()}.items():
        books.apply(NodeSeen(Node(NodeName(name), labels, allocatable=((GPU, 8),) if labels else ())))
    return books
