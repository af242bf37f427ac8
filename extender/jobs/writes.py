"""What is written on a Job: the acts of its book, built from what is known of it.

To start is to take away what the admission before added and to add what this one says, in one go, so a Job that moves
from one flavor to another carries nothing of the first. To stop leaves the template alone: Kubernetes freezes it while
the Job is not suspended, in the very PATCH that suspends it too.
"""

from collections.abc import Mapping

import msgspec

from extender.jobs.admission import (
    JobAdmission,
    Requeue,
    Undo,
    admission_id,
    read_job_admission,
    read_requeue,
    write_job_admission,
    write_requeue,
    write_unit_admission,
)
from extender.jobs.shape import Live, base_selector, base_tolerations, growth_uid, job_uid, scaled, wanted
from extender.model.effects import EvictionReason, RecordEvent
from extender.model.jobs import (
    ACTIVE_ANNOTATION,
    EVICTED_ANNOTATION,
    REQUEUE_ANNOTATION,
    UNIT_ADMISSION_ANNOTATION,
    UNIT_ANNOTATION,
    UNIT_JOB,
    GrowJob,
    Job,
    JobEffect,
    JobPods,
    JobRef,
    Kind,
    ReleaseJob,
    ResetStart,
    SetJobCondition,
    StartJob,
    StopJob,
    SuspendJob,
    TemplateWrite,
)
from extender.model.names import FlavorName, PodUid
from extender.model.pods import ADMISSION_ANNOTATION, MANAGED_LABEL
from extender.model.quota import Labels, ResourceFlavor
from extender.model.reasons import Reason
from extender.model.workload import Admission, PodSetAssignment

OURS_ON_A_JOB = (ADMISSION_ANNOTATION, EVICTED_ANNOTATION, REQUEUE_ANNOTATION, ACTIVE_ANNOTATION)
OURS_ON_A_TEMPLATE = (UNIT_ANNOTATION, UNIT_ADMISSION_ANNOTATION)
SUSPENDED_BY_HAND = "SuspendedByHand"


class Writes:
    """Builds acts. *flavors* is kept current by the books."""

    def __init__(self, kinds: tuple[Kind, ...], flavors: Mapping[FlavorName, ResourceFlavor]) -> None:
        self._kinds = {kind.name: kind for kind in kinds}
        self._flavors = flavors

    def ref(self, job: Job) -> JobRef:
        """Which object is meant."""
        kind = self._kinds[job.kind]
        return JobRef(kind.api_version, kind.kind, kind.plural, job.namespace, job.name, job.uid, kind.suspend)

    def start(self, job: Job, past: JobAdmission | None, admission: Admission) -> StartJob:
        """Admit: suspend off, the flavor on every template, the admission on the Job."""
        given = {one.name: one for one in admission.assignments}
        undo, added = [], []
        for pods in job.pods:
            write, took = self._fit(pods, past, self._flavors_of(given[pods.name]))
            added.append(write)
            undo.append(took)
        parallelism = self._reduced(job, given)
        completions = parallelism if parallelism is not None and job.equal_completions else None
        made = JobAdmission(
            id=admission_id(job.uid, job.resource_version, admission.at_ms),
            admission=admission,
            undo=tuple(one for one in undo if one.selector or one.tolerations),
            parallelism=job.parallelism if parallelism is not None else None,
            completions=job.completions if completions is not None else None,
        )
        return StartJob(
            workload=job_uid(job.uid),
            uid=job.uid,
            ref=self.ref(job),
            resource_version=job.resource_version,
            admission=write_job_admission(job.uid, made),
            annotated=job.annotated,
            was_evicted=job.evicted is not None,
            templates=tuple(
                msgspec.structs.replace(write, annotations=_marked(job.uid, write.annotations, made, given[pods.name]))
                for pods, write in zip(job.pods, added, strict=True)
            ),
            parallelism=parallelism,
            completions=completions,
        )

    def _fit(
        self, pods: JobPods, past: JobAdmission | None, flavors: list[ResourceFlavor]
    ) -> tuple[TemplateWrite, Undo]:
        selector, tolerations = dict(base_selector(pods, past)), base_tolerations(pods, past)
        new = {key: value for flavor in flavors for key, value in flavor.node_labels if key not in selector}
        more = tuple(dict.fromkeys(one for flavor in flavors for one in flavor.tolerations if one not in tolerations))
        whole = (*tolerations, *more)
        write = TemplateWrite(
            path=pods.path,
            node_selector=_sorted({**selector, **new}),
            labels=_sorted({**dict(pods.labels), MANAGED_LABEL: "true"}),
            annotations=pods.annotations,
            tolerations=whole if whole != pods.tolerations else None,
            has_metadata=pods.has_metadata,
        )
        return write, Undo(pods.name, tuple(sorted(new)), more)

    def _flavors_of(self, assignment: PodSetAssignment) -> list[ResourceFlavor]:
        names = dict.fromkeys(name for _, name in assignment.flavors)
        return [self._flavors[name] for name in names if name in self._flavors]

    def _reduced(self, job: Job, given: Mapping[str, PodSetAssignment]) -> int | None:
        """The parallelism of a Job that was admitted in part, None if it was not."""
        if not job.min_count or job.parallelism is None or len(job.pods) != 1:
            return None
        count = given[job.pods[0].name].count
        return count if count < wanted(job, job.pods[0]) else None

    def stop(
        self, job: Job, given: JobAdmission, text: str, *, reason: EvictionReason | None, at_ms: int = 0
    ) -> StopJob:
        """Evict; *reason* None: it was suspended by hand, and is not to come back by itself. *at_ms* 0: not known."""
        why = str(reason) if reason else SUSPENDED_BY_HAND
        return StopJob(
            workload=job_uid(job.uid),
            uid=job.uid,
            ref=self.ref(job),
            admission=text,
            requeue=write_requeue(Requeue(read_requeue(job.requeue).count + 1, why, at_ms)),
            deactivate=reason is None or why.startswith("Deactivated"),
            parallelism=given.parallelism,
            completions=given.completions,
        )

    def hold(self, job: Job) -> SuspendJob:
        """Suspend and mark a Job that runs, or waits, without our marks."""
        return SuspendJob(job.uid, self.ref(job), job.resource_version, job.suspend_parent, job.labelled)

    def reset(self, job: Job) -> ResetStart:
        """Clear the start time."""
        return ResetStart(job.uid, self.ref(job), job.resource_version)

    def grow(self, job: Job, given: JobAdmission, more: Admission) -> GrowJob | None:
        """Add what *more* gives; None, if that is on other flavors than the Job has."""
        added = {one.name: one for one in more.assignments}
        flavors = {one.name: one.flavors for one in given.admission.assignments}
        if any(one.flavors != flavors.get(one.name) for one in more.assignments):
            return None
        assignments = tuple(
            _sum(one, added[one.name]) if one.name in added else one for one in given.admission.assignments
        )
        return self._counted(job, given, assignments)

    def shrink(self, job: Job, given: JobAdmission, live: Mapping[str, Live]) -> GrowJob | None:
        """Give up what a Job will not use again: fewer pods are written than it was admitted for."""
        if job.parallelism is None or given.parallelism is not None:
            return None
        if not len(job.pods) == len(given.admission.assignments) == 1:
            return None
        (pods,), (one,) = job.pods, given.admission.assignments
        if pods.count >= one.count or live.get(one.name, Live()).bound > pods.count:
            return None
        return self._counted(job, given, (scaled(one, pods.count),))

    def _counted(self, job: Job, given: JobAdmission, assignments: tuple[PodSetAssignment, ...]) -> GrowJob:
        admission = msgspec.structs.replace(given.admission, assignments=assignments)
        text = write_job_admission(job.uid, msgspec.structs.replace(given, admission=admission))
        return GrowJob(growth_uid(job.uid), job.uid, self.ref(job), job.admission or "", text)

    def release(self, job: Job, past: JobAdmission | None) -> ReleaseJob:
        """Let go: the templates as their owner wrote them."""
        annotations = tuple(
            key
            for key, value in zip(OURS_ON_A_JOB, (job.admission, job.evicted, job.requeue, None), strict=True)
            if value is not None or (key == ACTIVE_ANNOTATION and not job.active)
        )
        templates = tuple(
            TemplateWrite(
                path=pods.path,
                node_selector=base_selector(pods, past),
                labels=tuple(pair for pair in pods.labels if pair[0] != MANAGED_LABEL),
                annotations=tuple(pair for pair in pods.annotations if pair[0] not in OURS_ON_A_TEMPLATE),
                tolerations=base_tolerations(pods, past),
                has_metadata=pods.has_metadata,
            )
            for pods in job.pods
        )
        return ReleaseJob(job.uid, self.ref(job), job.resource_version, annotations, job.managed, templates)

    def condition(self, job: Job, why: Reason | None) -> list[JobEffect | RecordEvent]:
        """Say why it waits. Conditions of other kinds are their controllers' own, so there it is an event."""
        status, code, message = (
            (True, "Admitted", "quota is reserved") if why is None else (False, str(why.code), why.sentence())
        )
        ref = self.ref(job)
        if self._kinds[job.kind].is_batch_job:
            return [SetJobCondition(job.uid, ref, status, code, message)] if job.condition != message else []
        return [self.event(job, code, message)]

    def event(self, job: Job, code: str, message: str, *, warning: bool = False) -> RecordEvent:
        """A Kubernetes event on the Job."""
        kind = self._kinds[job.kind]
        return RecordEvent(
            PodUid(job.uid),
            job.namespace,
            job.name,
            code,
            message,
            warning,
            kind=kind.kind,
            api_version=kind.api_version,
        )


def _marked(job: str, annotations: Labels, made: JobAdmission, assignment: PodSetAssignment) -> Labels:
    marks = {UNIT_ANNOTATION: UNIT_JOB, UNIT_ADMISSION_ANNOTATION: write_unit_admission(job, made, assignment)}
    return _sorted({**dict(annotations), **marks})


def _sorted(pairs: Mapping[str, str]) -> Labels:
    return tuple(sorted(pairs.items()))


def _sum(one: PodSetAssignment, more: PodSetAssignment) -> PodSetAssignment:
    added = dict(more.usage)
    usage = tuple((resource, amount + added.get(resource, 0)) for resource, amount in one.usage)
    return msgspec.structs.replace(one, usage=usage, count=one.count + more.count)


def admitted_count(job: Job, pod_set: str) -> int:
    """For how many pods of *pod_set* the Job was admitted, 0 if it was not."""
    given = read_job_admission(job.uid, job.admission)
    counts = {one.name: one.count for one in given.admission.assignments} if given else {}
    return counts.get(pod_set, 0)
