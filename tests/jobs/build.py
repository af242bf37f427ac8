"""Short forms of the records that the tests of the book need, and Jobs' JSON as an API server sends it."""

from typing import Any

import msgspec
import orjson

from extender.jobs.kinds import kinds_of
from extender.jobs.shelf import Shelf
from extender.kube.decode_jobs import codec
from extender.model.effects import Admit
from extender.model.events import EngineEvent, FlavorSeen, NodeSeen, PodSeen, WorkloadSeen
from extender.model.jobs import Job, JobSeen, StartJob
from extender.model.names import ClusterQueueName, FlavorName, Namespace, NodeName, PodUid, ResourceName, WorkloadUid
from extender.model.pods import Node, Owner, Pod
from extender.model.quota import ResourceFlavor, Toleration
from extender.model.workload import Admission, PodSetAssignment, Workload

GPU = ResourceName("example.com/gpu")
KINDS = kinds_of(("JobSet", "PyTorchJob"), ())
JOB, JOB_SET, PYTORCH_JOB = KINDS
UID = WorkloadUid("job:u1")


def job_json(**changes: Any) -> dict[str, Any]:
    """A held Job of four pods of one GPU, with UID ``u1``; *changes* by path, ``spec__parallelism=3`` for example."""
    found: dict[str, Any] = {
        "metadata": {
            "name": "train",
            "namespace": "lab",
            "uid": "u1",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-31T08:00:00Z",
            "labels": {"kueue.x-k8s.io/queue-name": "lab", "cohort-extender.io/managed": "true"},
            "annotations": {},
        },
        "spec": {
            "suspend": True,
            "parallelism": 4,
            "completions": 4,
            "template": {
                "metadata": {"annotations": {"cohort-extender.io/unit": "job"}},
                "spec": {"containers": [{"resources": {"requests": {GPU: "1"}}}]},
            },
        },
        "status": {"conditions": [{"type": "Suspended", "status": "True"}]},
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        inner = found
        for part in parents:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return found


def job(**changes: Any) -> Job:
    """The record of such a Job."""
    item = codec(JOB).item(orjson.dumps(job_json(**changes)))
    assert isinstance(item.fact, JobSeen)
    return item.fact.job


def unit_pod(name: str, *, unit: str, **changes: Any) -> Pod:
    """A pod that the Job ``u1`` made under the admission that *unit* tells of."""
    fields: dict[str, Any] = {
        "uid": PodUid(name),
        "namespace": Namespace("lab"),
        "name": name,
        "resource_version": "1",
        "created_ms": 1_000,
        "queue": "",
        "requests": ((GPU, 1),),
        "managed": True,
        "owner": Owner("Job", "train", "u1"),
        "unit": True,
        "unit_admission": unit,
    }
    return Pod(**{**fields, **changes})


def admission(*, flavor: str = "blue", count: int = 4, at_ms: int = 5_000) -> Admission:
    """One GPU a pod."""
    part = PodSetAssignment("main", ((GPU, FlavorName(flavor)),), ((GPU, count),), count)
    return Admission(ClusterQueueName("lab-cq"), (part,), at_ms)


class Play:
    """A shelf, a Job in it, and what would have been written on it."""

    def __init__(self) -> None:
        self.shelf = Shelf(KINDS)
        for name in ("blue", "green"):
            tolerations = (Toleration(key="color", value=name),)
            self.shelf.apply(FlavorSeen(ResourceFlavor(FlavorName(name), (("color", name),), tolerations=tolerations)))
            self.shelf.apply(NodeSeen(Node(NodeName(name), (("color", name),))))
        self.version = 7

    def sees(self, found: Job) -> list[EngineEvent]:
        """A Job was created or changed."""
        self.version += 1
        return self.shelf.apply(JobSeen(msgspec.structs.replace(found, resource_version=str(self.version))))

    def sees_pod(self, pod: Pod) -> list[EngineEvent]:
        """A pod was created or changed."""
        return self.shelf.apply(PodSeen(pod))

    def starts(self, given: Admission | None = None) -> StartJob:
        """The engine admits the Job; the write."""
        (write,) = self.shelf.admit(Admit(UID, given or admission()))
        assert isinstance(write, StartJob)
        return write

    def runs(self, **changes: Any) -> tuple[Job, str]:
        """The Job as it is once admitted, and its pods' annotation."""
        self.sees(job())
        write = self.starts()
        (template,) = write.templates
        unit = dict(template.annotations)["cohort-extender.io/unit-admission"]
        running = admitted(write, **changes)
        self.sees(running)
        return running, unit


def admitted(write: StartJob, **changes: Any) -> Job:
    """The Job after *write*."""
    (template,) = write.templates
    fields = {
        "spec__suspend": False,
        "metadata__annotations": {"cohort-extender.io/admission": write.admission},
        "spec__template__spec__nodeSelector": dict(template.node_selector),
        "spec__template__spec__tolerations": [
            {"key": one.key, "operator": one.operator, "value": one.value} for one in template.tolerations or ()
        ],
        "status": {"active": 4, "startTime": "2026-01-31T08:01:00Z"},
    }
    return job(**{**fields, **changes})


def evicted(write: StartJob, **changes: Any) -> Job:
    """The Job after it was admitted by *write* and evicted."""
    annotations = {"cohort-extender.io/evicted": write.admission}
    fields: dict[str, Any] = {"spec__suspend": True, "metadata__annotations": annotations, "status": {}}
    return admitted(write, **{**fields, **changes})


def told(events: list[EngineEvent]) -> Workload:
    """The one workload that the engine is told of."""
    (event,) = events
    assert isinstance(event, WorkloadSeen)
    return event.workload
