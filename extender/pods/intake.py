"""From a pod to the workload that the engine sees."""

from collections.abc import Mapping

import msgspec

from extender.model.names import LocalQueueKey, LocalQueueName, WorkloadUid
from extender.model.pods import GATE, Pod
from extender.model.reasons import Reason, ReasonCode, reason
from extender.model.workload import Admission, PodSet, PodSetAssignment, Workload
from extender.pods.admission import PodAdmission, read_admission

DEFAULT_QUEUE = LocalQueueName("default")
MAIN = "main"


def queue_of(pod: Pod) -> LocalQueueKey:
    """The LocalQueue a managed pod waits in: the one it names, else the namespace's ``default``."""
    return LocalQueueKey(pod.namespace, pod.queue or DEFAULT_QUEUE)


def pod_set_of(pod: Pod, *, name: str = MAIN, count: int = 1) -> PodSet:
    """The pod set of *count* pods like this one."""
    return PodSet(
        name=name,
        count=count,
        requests=pod.requests,
        node_selector=pod.node_selector,
        tolerations=pod.tolerations,
        affinity=pod.affinity,
    )


def priority_of(pod: Pod, classes: Mapping[str, int]) -> int:
    """The value of the pod's WorkloadPriorityClass, else its own priority (also while the class does not exist)."""
    return classes.get(pod.priority_class, pod.priority) if pod.priority_class else pod.priority


def single_workload(pod: Pod, classes: Mapping[str, int]) -> Workload:
    """The workload of a pod on its own; it has the pod's UID."""
    written = read_admission(pod.uid, pod.admission)
    admission = _of_one(written) if written else None
    return Workload(
        uid=WorkloadUid(pod.uid),
        name=f"{pod.namespace}/{pod.name}",
        queue=queue_of(pod),
        created_ms=pod.created_ms,
        pod_sets=(pod_set_of(pod),),
        priority=priority_of(pod, classes),
        admission=admission,
        evicted=admission is not None and pod.deleting,
        held=None if admission else hold(pod, classes),
    )


def _of_one(written: PodAdmission) -> Admission:
    """What one pod holds: a pod that was admitted with others, and has left them, brings its own share only."""
    own = written.assignment
    if own.name == MAIN:
        return written.admission
    usage = tuple((resource, amount // max(1, own.count)) for resource, amount in own.usage)
    alone = PodSetAssignment(MAIN, own.flavors, usage, 1)
    return msgspec.structs.replace(written.admission, assignments=(alone,))


def hold(pod: Pod, classes: Mapping[str, int]) -> Reason | None:
    """Why this pod must not be admitted whatever the quota, None if it may.

    A pod held by a gate of somebody else could not run, so it gets no quota until that gate is gone. A pod whose gate
    was taken away without an admission was tampered with: it stays out, since it may be anywhere by now.
    """
    if pod.problem:
        return reason(ReasonCode.REQUEST_INVALID, problem=pod.problem)
    if pod.priority_class and pod.priority_class not in classes:
        return reason(
            ReasonCode.REQUEST_INVALID,
            problem=f"WorkloadPriorityClass {pod.priority_class} does not exist; create it or change the label",
        )
    foreign = [gate for gate in pod.gates if gate != GATE]
    if foreign:
        return reason(ReasonCode.FOREIGN_GATE, gates=", ".join(foreign))
    if not pod.gated and not pod.adopted:
        return reason(ReasonCode.DEACTIVATED, by="removal of its scheduling gate by hand; delete the pod to start over")
    return None
