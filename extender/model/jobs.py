"""Jobs: objects that make pods and can be held by a field of their own, as flat records; facts and acts about them.

A kind is data (``Kind``): where an object says that it is suspended, where its pod templates and their counts are, and
where it says that it is over. batch/v1 Job is one row of that table, and the richest.
"""

from typing import Any

import msgspec

from extender.model.names import LocalQueueName, Namespace, PodUid, WorkloadUid
from extender.model.pods import Owner
from extender.model.quota import Labels, Requirement, Toleration
from extender.model.trees import Path
from extender.model.workload import Requests

UNIT_ANNOTATION = "cohort-extender.io/unit"
"""``job`` on the pod templates of a queued Job, and so on its pods: part of it, never queued by themselves."""
UNIT_JOB = "job"
UNIT_ADMISSION_ANNOTATION = "cohort-extender.io/unit-admission"
"""Which admission a pod was made under: its id, a slash, the pod set. Written into the template by the admission."""
EVICTED_ANNOTATION = "cohort-extender.io/evicted"
"""On a Job: the admission that it lost, until its pods are gone and it is admitted anew."""
REQUEUE_ANNOTATION = "cohort-extender.io/requeue"
"""On a Job: how often it was evicted, when last and why."""
ACTIVE_ANNOTATION = "cohort-extender.io/active"
"""``"false"`` on a Job that is not to run: written when somebody suspends it by hand, removed by that somebody."""
PLACES_ANNOTATION = "cohort-extender.io/places"
"""On a pod that had to wait for its Job's admission to grow: for how many pods that is now."""
MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
EQUAL_COMPLETIONS = "kueue.x-k8s.io/job-completions-equal-parallelism"
JOB_PREFIX = "job:"
"""How the workload UID of a Job begins."""
GROWTH_PREFIX = "growth:"
"""How the workload UID of what a running Job wants beyond its admission begins."""


class PodSetRule(msgspec.Struct, frozen=True):
    """Where pod sets are.

    ``each``: a list or map with one pod set an element, empty if there is one only. ``name`` (of a list's element),
    ``template`` and ``count`` are within the element. ``count`` is a product of factors, each the least of the paths
    that exist, 1 if none does. ``requests``: where one pod's resources are, if the template has no containers.
    ``required`` must lead to something, or the object is not to be judged by itself.
    """

    template: Path
    count: tuple[tuple[Path, ...], ...] = ()
    each: Path = ()
    name: Path = ()
    requests: Path = ()
    required: tuple[Path, ...] = ()


class Addition(msgspec.Struct, frozen=True):
    """An element of the list at ``path`` that a queued object has to have, unless one of its ``key`` is there."""

    path: Path
    key: str
    item: dict[str, Any]


class Kind(msgspec.Struct, frozen=True):
    """One kind of Job.

    ``active``: numbers (or lists of objects with such a number) to be added up. It is over when a condition of
    ``finished_conditions`` is True, or what stands at ``finished_path`` is one of ``finished_values``.
    """

    group: str
    version: str
    kind: str
    plural: str
    suspend: Path
    pod_sets: tuple[PodSetRule, ...]
    active: tuple[Path, ...] = ()
    finished_conditions: tuple[str, ...] = ()
    finished_path: Path = ()
    finished_values: tuple[str, ...] = ()
    priority_class: Path = ()
    additions: tuple[Addition, ...] = ()

    @property
    def name(self) -> str:
        """The kind in one word: plural and group."""
        return f"{self.plural}.{self.group}"

    @property
    def api_version(self) -> str:
        """Group and version as objects carry them."""
        return f"{self.group}/{self.version}"

    @property
    def is_batch_job(self) -> bool:
        """Whether it is batch/v1 Job, which has more rules than a row can say."""
        return self.group == "batch" and self.kind == "Job"


class JobPods(msgspec.Struct, frozen=True, gc=False):
    """One pod set of a Job as its template says, with what was written into it by us.

    ``path`` leads to the template. ``labels`` and ``annotations`` are those of the template, whole.
    """

    name: str
    path: Path
    count: int
    requests: Requests
    node_selector: Labels = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: tuple[tuple[Requirement, ...], ...] = ()
    labels: Labels = ()
    annotations: Labels = ()
    has_metadata: bool = True
    gates: tuple[str, ...] = ()


class Job(msgspec.Struct, frozen=True, gc=False):
    """One Job that names a queue, or a child of such a Job, as the API server last showed it.

    ``kind`` names its row. ``managed``: it carries our label. ``queue`` empty and not managed: a child, known for its
    owner only. ``running`` is how many pods its controller counts as active. ``started``: a start time is set.
    ``suspension_seen``: its controller says that it is suspended. ``parallelism``, ``completions``, ``min_count`` are
    batch/v1's, None or 0 where they are not set. ``done`` is how many completions (or indexes) need no pod any more.
    ``pod_priority_class`` is what the first template that names one names. ``active`` False: not to be run.
    ``run_s_max`` is how long it may run, 0: no limit. ``suspend_parent``: the object that holds the field exists;
    ``annotated``, ``labelled``: so do these maps.
    """

    kind: str
    uid: str
    namespace: Namespace
    name: str
    resource_version: str
    created_ms: int
    queue: LocalQueueName
    pods: tuple[JobPods, ...] = ()
    suspended: bool = False
    managed: bool = False
    admission: str | None = None
    evicted: str | None = None
    requeue: str | None = None
    active: bool = True
    running: int = 0
    started: bool = False
    suspension_seen: bool = False
    finished: bool = False
    deleting: bool = False
    parallelism: int | None = None
    completions: int | None = None
    min_count: int = 0
    equal_completions: bool = False
    done: int = 0
    priority_class: str = ""
    pod_priority_class: str = ""
    run_s_max: int = 0
    owner: Owner | None = None
    suspend_parent: bool = True
    annotated: bool = True
    labelled: bool = True
    condition: str = ""
    problem: str = ""


class JobSeen(msgspec.Struct, frozen=True, gc=False):
    """A Job that concerns us was created or changed."""

    job: Job


class JobGone(msgspec.Struct, frozen=True, gc=False):
    """A Job was deleted, or concerns us no more."""

    uid: str


class PodPriorityClassSeen(msgspec.Struct, frozen=True):
    """A PriorityClass (Kubernetes' own) was created or changed."""

    name: str
    value: int
    is_default: bool = False


class PodPriorityClassGone(msgspec.Struct, frozen=True):
    """A PriorityClass (Kubernetes' own) was deleted."""

    name: str


JobEvent = JobSeen | JobGone | PodPriorityClassSeen | PodPriorityClassGone


class TemplateWrite(msgspec.Struct, frozen=True, gc=False):
    """A pod template as it is to be: whole maps. ``tolerations`` None: they stay."""

    path: Path
    node_selector: Labels
    labels: Labels
    annotations: Labels
    tolerations: tuple[Toleration, ...] | None = None
    has_metadata: bool = True


class JobRef(msgspec.Struct, frozen=True, gc=False):
    """Which object is meant, and where it says that it is suspended."""

    api_version: str
    kind: str
    plural: str
    namespace: Namespace
    name: str
    uid: str
    suspend: Path


class StartJob(msgspec.Struct, frozen=True, gc=False):
    """One PATCH, guarded by uid and version: suspend off, templates with the flavor, the admission written.

    ``annotated``: the Job has annotations already; ``was_evicted``: one of them is an earlier admission, which goes.
    ``parallelism`` and ``completions`` None: they stay.
    """

    workload: WorkloadUid
    uid: str
    ref: JobRef
    resource_version: str
    admission: str
    annotated: bool
    was_evicted: bool
    templates: tuple[TemplateWrite, ...]
    parallelism: int | None = None
    completions: int | None = None


class StopJob(msgspec.Struct, frozen=True, gc=False):
    """One PATCH, guarded by uid and by the admission it ends: suspend on, the admission moved to ``evicted``.

    Not by version: the status of a running Job never rests. ``deactivate``: somebody suspended it by hand.
    """

    workload: WorkloadUid
    uid: str
    ref: JobRef
    admission: str
    requeue: str
    deactivate: bool = False
    parallelism: int | None = None
    completions: int | None = None


class SuspendJob(msgspec.Struct, frozen=True, gc=False):
    """One PATCH, guarded by uid and version: a queued Job without an admission is suspended, and marked as ours."""

    uid: str
    ref: JobRef
    resource_version: str
    suspend_parent: bool
    labelled: bool


class GrowJob(msgspec.Struct, frozen=True, gc=False):
    """One PATCH of the annotation alone: a running Job's admission is larger now. Guarded by the one before."""

    workload: WorkloadUid
    uid: str
    ref: JobRef
    before: str
    admission: str


class ResetStart(msgspec.Struct, frozen=True, gc=False):
    """Clear the start time of a suspended Job: Kubernetes up to 1.35 wants that before its template may change."""

    uid: str
    ref: JobRef
    resource_version: str


class ReleaseJob(msgspec.Struct, frozen=True, gc=False):
    """A suspended Job leaves our care: its templates as they were, nothing of ours on it. Guarded by the version."""

    uid: str
    ref: JobRef
    resource_version: str
    annotations: tuple[str, ...]
    label: bool
    templates: tuple[TemplateWrite, ...]


class SetJobCondition(msgspec.Struct, frozen=True, gc=False):
    """Say on a batch/v1 Job why it waits (or that it is admitted). The newest per Job is enough."""

    uid: str
    ref: JobRef
    status: bool
    reason: str
    message: str


class NudgePod(msgspec.Struct, frozen=True, gc=False):
    """Make kube-scheduler look at a pod of a Job again: its Job has *places* now. Guarded by uid.

    The scheduler puts a pod that an extender refused aside until something in the cluster changes that it watches; an
    admission that grows is no such thing, a change of the pod is.
    """

    uid: PodUid
    namespace: Namespace
    name: str
    places: int


JobAct = StartJob | StopJob | SuspendJob | GrowJob | ResetStart | ReleaseJob
JobEffect = JobAct | SetJobCondition | NudgePod
