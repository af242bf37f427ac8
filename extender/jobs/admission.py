"""The admission as it stands on a Job, and its short form on the Job's pod templates.

On the Job it carries all that a restart needs: the quota that was given, by pod set, and what to undo when the Job is
admitted anew: the selector keys and tolerations that were added, and the parallelism that was written before. It is
bound to the Job's UID, which nobody knows when creating the Job (ADR 0003).

On the template, which is frozen while the Job runs, stands no count: id, Job, queue and flavors. Pods carry it, so that
a pod of an earlier admission is told from one of this, and a pod that outlived its Job still says what it uses.
"""

import hashlib
from functools import lru_cache

import msgspec

from extender.model.amounts import TimeMs, Whole
from extender.model.errors import UNREADABLE
from extender.model.names import ClusterQueueName
from extender.model.quota import Toleration
from extender.model.workload import Admission, PodSetAssignment
from extender.model.written import ANNOTATION_LENGTH_MAX, WrittenPodSet

_ID_BYTES = 6


class Undo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was added to the template of one pod set: keys of its nodeSelector, and tolerations."""

    name: str
    selector: tuple[str, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


class _Written(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    job: str
    id: str
    cluster_queue: str
    at_ms: TimeMs
    pod_sets: tuple[WrittenPodSet, ...]
    undo: tuple[Undo, ...] = ()
    parallelism: Whole | None = None
    completions: Whole | None = None


class JobAdmission(msgspec.Struct, frozen=True):
    """What the annotation of a Job says. ``parallelism`` and ``completions`` are what to put back, None if nothing."""

    id: str
    admission: Admission
    undo: tuple[Undo, ...] = ()
    parallelism: int | None = None
    completions: int | None = None

    def undo_of(self, pod_set: str) -> Undo:
        """What was added to the template of *pod_set*."""
        return next((one for one in self.undo if one.name == pod_set), Undo(pod_set))


class UnitAdmission(msgspec.Struct, rename="camel", frozen=True):
    """What the annotation of a pod says: which admission of which Job it was made under."""

    job: str
    id: str
    pod_set: str
    cluster_queue: str
    at_ms: TimeMs
    flavors: dict[str, str]


class Requeue(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """How often a Job was evicted, why the last time, and when, if that decides its place in line."""

    count: Whole = 0
    reason: str = ""
    at_ms: TimeMs = 0


_DECODER = msgspec.json.Decoder(_Written)
_REQUEUE_DECODER = msgspec.json.Decoder(Requeue)
_UNIT_DECODER = msgspec.json.Decoder(UnitAdmission)
_ENCODER = msgspec.json.Encoder(order="sorted")


def admission_id(job: str, resource_version: str, at_ms: int) -> str:
    """A name for one admission of *job*: no other admission of any Job has it."""
    text = f"{job} {resource_version} {at_ms}".encode()
    return hashlib.blake2b(text, digest_size=_ID_BYTES).hexdigest()


def write_job_admission(job: str, given: JobAdmission) -> str:
    """The annotation of *job*."""
    sets = tuple(WrittenPodSet.of(one) for one in given.admission.assignments)
    queue, at_ms = given.admission.cluster_queue, given.admission.at_ms
    written = _Written(job, given.id, queue, at_ms, sets, given.undo, given.parallelism, given.completions)
    return _ENCODER.encode(written).decode()


def read_job_admission(job: str, text: str | None) -> JobAdmission | None:
    """What the annotation *text* of *job* says; None if there is none, or it is not one that was written for it."""
    if text is None or len(text) > ANNOTATION_LENGTH_MAX:
        return None
    try:
        written = _DECODER.decode(text)
    except UNREADABLE:
        return None
    names = [one.name for one in written.pod_sets]
    if written.job != job or not written.cluster_queue or len(set(names)) != len(names):
        return None
    assignments = tuple(one.assignment() for one in written.pod_sets)
    admission = Admission(ClusterQueueName(written.cluster_queue), assignments, written.at_ms)
    return JobAdmission(written.id, admission, written.undo, written.parallelism, written.completions)


def write_requeue(requeue: Requeue) -> str:
    """The annotation of a Job that was evicted."""
    return _ENCODER.encode(requeue).decode()


def read_requeue(text: str | None) -> Requeue:
    """What the annotation *text* says; nothing, if there is none or it cannot be read."""
    try:
        return _REQUEUE_DECODER.decode(text) if text else Requeue()
    except UNREADABLE:
        return Requeue()


def write_unit_admission(job: str, given: JobAdmission, assignment: PodSetAssignment) -> str:
    """The annotation of the template of one pod set."""
    queue, at_ms = given.admission.cluster_queue, given.admission.at_ms
    unit = UnitAdmission(job, given.id, assignment.name, queue, at_ms, dict(assignment.flavors))
    return _ENCODER.encode(unit).decode()


@lru_cache(maxsize=8192)
def read_unit_admission(text: str) -> UnitAdmission | None:
    """What the annotation *text* of a pod says; None if it cannot be read. All pods of a template share one text."""
    if not text or len(text) > ANNOTATION_LENGTH_MAX:
        return None
    try:
        return _UNIT_DECODER.decode(text)
    except UNREADABLE:
        return None
