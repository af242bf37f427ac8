"""From a Job to the workload that the engine sees: what it asks for, what it holds, and why it must wait.

While it waits, a Job is judged by its template as its owner wrote it: what an earlier admission added is taken away
first. While it runs it holds what it was admitted for, less what no pod will be made for any more, and never less than
its bound pods take. Once it is told to stop it holds what its pods take, until they have ended.
Source: jobs specification, sections 2, 5 and 8.
"""

from collections.abc import Iterable, Mapping

import msgspec

from extender.jobs.admission import JobAdmission, UnitAdmission, read_requeue
from extender.model.effects import EvictionReason
from extender.model.jobs import ACTIVE_ANNOTATION, GROWTH_PREFIX, JOB_PREFIX, Job, JobPods
from extender.model.names import (
    ClusterQueueName,
    FlavorName,
    LocalQueueKey,
    LocalQueueName,
    ResourceName,
    WorkloadUid,
)
from extender.model.pods import Pod
from extender.model.quota import Labels, Toleration
from extender.model.reasons import Reason, ReasonCode, reason
from extender.model.workload import Admission, PodSet, PodSetAssignment, Workload

DEFAULT_QUEUE = LocalQueueName("default")


class Live(msgspec.Struct, frozen=True):
    """The live pods of one pod set of a Job: how many there are, and how many of them have a node."""

    pods: int = 0
    bound: int = 0


class Classes(msgspec.Struct):
    """What priority classes are worth: the queue's own by name, and Kubernetes' with its default."""

    workload: dict[str, int]
    pod: dict[str, int]
    default: int = 0


def job_uid(job: str) -> WorkloadUid:
    """The workload of the Job with this UID."""
    return WorkloadUid(f"{JOB_PREFIX}{job}")


def growth_uid(job: str) -> WorkloadUid:
    """The workload of what the running Job with this UID wants in addition."""
    return WorkloadUid(f"{GROWTH_PREFIX}{job}")


def base_selector(pods: JobPods, past: JobAdmission | None) -> Labels:
    """The template's nodeSelector without what *past* added."""
    if past is None:
        return pods.node_selector
    added = past.undo_of(pods.name).selector
    return tuple(pair for pair in pods.node_selector if pair[0] not in added)


def base_tolerations(pods: JobPods, past: JobAdmission | None) -> tuple[Toleration, ...]:
    """The template's tolerations without what *past* added."""
    if past is None:
        return pods.tolerations
    added = past.undo_of(pods.name).tolerations
    return tuple(one for one in pods.tolerations if one not in added)


def wanted(job: Job, pods: JobPods) -> int:
    """How many pods of this set are still to run together: of batch/v1 less than written once some have succeeded."""
    if job.parallelism is None:
        return pods.count
    completions = job.parallelism if job.completions is None else job.completions
    return max(0, min(job.parallelism, completions - job.done))


def waiting_workload(job: Job, past: JobAdmission | None, classes: Classes, *, held: Reason | None) -> Workload:
    """The workload of a Job that waits; *past* is the admission that it had before, if any."""
    sets = tuple(
        PodSet(
            name=pods.name,
            count=wanted(job, pods),
            requests=pods.requests,
            count_min=job.min_count if 0 < job.min_count < wanted(job, pods) else None,
            node_selector=base_selector(pods, past),
            tolerations=base_tolerations(pods, past),
            affinity=pods.affinity,
        )
        for pods in job.pods
    )
    made = _workload(job, job_uid(job.uid), sets, classes, held=held)
    return msgspec.structs.replace(made, created_ms=queued_since_ms(job))


def running_workload(job: Job, given: JobAdmission, live: Mapping[str, Live], classes: Classes) -> Workload:
    """The workload of an admitted Job."""
    left = {pods.name: wanted(job, pods) for pods in job.pods}
    assignments = tuple(
        scaled(one, max(min(one.count, left.get(one.name, one.count)), live.get(one.name, Live()).bound))
        for one in given.admission.assignments
    )
    return _holding(job, msgspec.structs.replace(given.admission, assignments=assignments), classes, evicted=False)


def leaving_workload(job: Job, given: JobAdmission, live: Mapping[str, Live], classes: Classes) -> Workload | None:
    """The workload of a Job that was told to stop; None, once nothing of it counts any more.

    Until its controller has seen the order, a pod without a node counts too: it may be about to get one.
    """
    unseen = job.suspended and not job.suspension_seen
    counts = {name: one.pods if unseen else one.bound for name, one in live.items()}
    if not any(counts.values()):
        return None
    assignments = tuple(scaled(one, counts.get(one.name, 0)) for one in given.admission.assignments)
    return _holding(job, msgspec.structs.replace(given.admission, assignments=assignments), classes, evicted=True)


def growth_workload(job: Job, given: JobAdmission, classes: Classes) -> Workload | None:
    """What a running Job wants beyond its admission, on the flavors that it has; None, if nothing."""
    counts = {one.name: one.count for one in given.admission.assignments}
    sets = tuple(
        PodSet(
            name=pods.name,
            count=wanted(job, pods) - counts[pods.name],
            requests=pods.requests,
            node_selector=pods.node_selector,
            tolerations=pods.tolerations,
            affinity=pods.affinity,
        )
        for pods in job.pods
        if wanted(job, pods) > counts.get(pods.name, wanted(job, pods))
    )
    if not sets or job.suspended or job.deleting or job.finished:
        return None
    return _workload(job, growth_uid(job.uid), sets, classes, held=None)


def orphans_workload(job: str, pods: Iterable[tuple[Pod, UnitAdmission]]) -> Workload | None:
    """The workload of pods that outlived their Job: what those with a node use, by their own annotation."""
    parts: dict[str, list[tuple[Pod, UnitAdmission]]] = {}
    for pod, unit in pods:
        if pod.node is not None and not pod.ended:
            parts.setdefault(unit.pod_set, []).append((pod, unit))
    if not parts:
        return None
    first, unit = min((one for part in parts.values() for one in part), key=lambda one: (one[0].created_ms, one[0].uid))
    assignments = tuple(_orphans(name, part) for name, part in sorted(parts.items()))
    return Workload(
        uid=job_uid(job),
        name=f"{first.namespace}/{first.owner.name if first.owner else first.name}",
        queue=LocalQueueKey(first.namespace, first.queue or DEFAULT_QUEUE),
        created_ms=first.created_ms,
        pod_sets=tuple(
            PodSet(one.name, one.count, tuple((name, amount // one.count) for name, amount in one.usage))
            for one in assignments
        ),
        priority=first.priority,
        admission=Admission(ClusterQueueName(unit.cluster_queue), assignments, unit.at_ms),
        evicted=all(pod.deleting for part in parts.values() for pod, _ in part),
    )


def _orphans(name: str, part: list[tuple[Pod, UnitAdmission]]) -> PodSetAssignment:
    pod, unit = part[0]
    flavors = tuple(sorted((ResourceName(key), FlavorName(value)) for key, value in unit.flavors.items()))
    asked = {ResourceName("pods"): 1, **dict(pod.requests)}
    usage = tuple((resource, asked.get(resource, 0) * len(part)) for resource, _ in flavors)
    return PodSetAssignment(name, flavors, usage, len(part))


def scaled(given: PodSetAssignment, count: int) -> PodSetAssignment:
    """*given* for another count. Division by the old one first, as the reference does (quota specification, 1.3)."""
    if count == given.count:
        return given
    usage = tuple((resource, amount // given.count * count if given.count else 0) for resource, amount in given.usage)
    return msgspec.structs.replace(given, usage=usage, count=count)


def priority_of(job: Job, classes: Classes) -> int:
    """The value of its WorkloadPriorityClass, else of its template's PriorityClass, else of the default one, else 0."""
    if job.priority_class:
        return classes.workload.get(job.priority_class, 0)
    return classes.pod.get(job.pod_priority_class, classes.default) if job.pod_priority_class else classes.default


def queued_since_ms(job: Job) -> int:
    """What its place in line goes by: its creation, also after a preemption.

    One that did not get ready in time is behind those that came before that.
    Unless requeuingStrategy.timestamp is Creation: then no time was written. Follows: ordering specification, 1.3.
    """
    last = read_requeue(job.requeue)
    return last.at_ms if last.reason == EvictionReason.PODS_READY_TIMEOUT and last.at_ms else job.created_ms


def deactivated(job: Job) -> Reason:
    """Why it does not come back by itself, and what does bring it back."""
    said = read_requeue(job.requeue).reason
    by = "hand"
    if said == EvictionReason.MAXIMUM_EXECUTION_TIME_EXCEEDED:
        by = "its maximum execution time"
    elif said == EvictionReason.REQUEUING_LIMIT_EXCEEDED:
        by = "waitForPodsReady, since its pods were not ready in time once too often"
    return reason(ReasonCode.DEACTIVATED, by=f"{by}; remove the annotation {ACTIVE_ANNOTATION} to queue it again")


def hold(job: Job, classes: Classes, *, left: int) -> Reason | None:
    """Why this Job must not be admitted whatever the quota, None if it may. *left*: its pods that have not ended."""
    if job.problem:
        return reason(ReasonCode.REQUEST_INVALID, problem=job.problem)
    if job.priority_class and job.priority_class not in classes.workload:
        return reason(
            ReasonCode.REQUEST_INVALID,
            problem=f"WorkloadPriorityClass {job.priority_class} does not exist; create it or change the label",
        )
    if not job.active:
        return deactivated(job)
    left = max(left, job.running)
    if left:
        return reason(ReasonCode.PODS_LEAVING, left=left)
    settled = job.suspended and job.managed and job.suspension_seen and not job.started
    return None if settled else reason(ReasonCode.NOT_EVALUATED)


def _holding(job: Job, admission: Admission, classes: Classes, *, evicted: bool) -> Workload:
    requests = {pods.name: pods.requests for pods in job.pods}
    sets = tuple(PodSet(one.name, one.count, requests.get(one.name, ())) for one in admission.assignments)
    made = _workload(job, job_uid(job.uid), sets, classes, held=None)
    return msgspec.structs.replace(made, admission=admission, evicted=evicted)


def _workload(
    job: Job, uid: WorkloadUid, sets: tuple[PodSet, ...], classes: Classes, *, held: Reason | None
) -> Workload:
    return Workload(
        uid=uid,
        name=f"{job.namespace}/{job.name}",
        queue=LocalQueueKey(job.namespace, job.queue or DEFAULT_QUEUE),
        created_ms=job.created_ms,
        pod_sets=sets,
        priority=priority_of(job, classes),
        held=held,
    )
