"""Facts, in the past tense: the only inputs of the engine and of the books.

A fact replaces what was known about its object; to be told twice changes nothing. The engine takes the first group and
``WorkloadSeen``/``WorkloadGone``; the books of pods take ``PodSeen`` … and turn them into workload facts.
"""

import msgspec

from extender.model.jobs import JobEvent
from extender.model.names import (
    ClusterQueueName,
    CohortName,
    FlavorName,
    LocalQueueKey,
    Namespace,
    NodeName,
    PodUid,
    WorkloadUid,
)
from extender.model.pods import Node, Pod
from extender.model.quota import ClusterQueue, Cohort, Labels, LocalQueue, ResourceFlavor
from extender.model.workload import Workload


class FlavorSeen(msgspec.Struct, frozen=True):
    """A ResourceFlavor was created or changed."""

    flavor: ResourceFlavor


class FlavorGone(msgspec.Struct, frozen=True):
    """A ResourceFlavor was deleted."""

    name: FlavorName


class CohortSeen(msgspec.Struct, frozen=True):
    """A Cohort was created or changed."""

    cohort: Cohort


class CohortGone(msgspec.Struct, frozen=True):
    """A Cohort was deleted; while something still names it, it lives on without quota, limits and parent."""

    name: CohortName


class ClusterQueueSeen(msgspec.Struct, frozen=True):
    """A ClusterQueue was created or changed."""

    cluster_queue: ClusterQueue


class ClusterQueueGone(msgspec.Struct, frozen=True):
    """A ClusterQueue was deleted."""

    name: ClusterQueueName


class LocalQueueSeen(msgspec.Struct, frozen=True):
    """A LocalQueue was created or changed."""

    local_queue: LocalQueue


class LocalQueueGone(msgspec.Struct, frozen=True):
    """A LocalQueue was deleted."""

    key: LocalQueueKey


class NamespaceSeen(msgspec.Struct, frozen=True):
    """A namespace was created or its labels changed."""

    name: Namespace
    labels: Labels


class NamespaceGone(msgspec.Struct, frozen=True):
    """A namespace was deleted."""

    name: Namespace


class WorkloadSeen(msgspec.Struct, frozen=True, gc=False):
    """A workload waits, or holds quota by its admission. Confirms an assumed admission when it carries one."""

    workload: Workload


class WorkloadGone(msgspec.Struct, frozen=True, gc=False):
    """A workload ended or was deleted: it uses nothing any more and waits no more."""

    uid: WorkloadUid


class AdmissionRefused(msgspec.Struct, frozen=True, gc=False):
    """The write of an assumed admission did not happen: forget the charge; the workload waits again."""

    uid: WorkloadUid
    cause: str


class EvictionRefused(msgspec.Struct, frozen=True, gc=False):
    """The eviction of a victim was not carried out; it may be chosen again."""

    uid: WorkloadUid
    cause: str


class PriorityClassSeen(msgspec.Struct, frozen=True):
    """A WorkloadPriorityClass was created or changed."""

    name: str
    value: int


class PriorityClassGone(msgspec.Struct, frozen=True):
    """A WorkloadPriorityClass was deleted."""

    name: str


class PodSeen(msgspec.Struct, frozen=True, gc=False):
    """A pod that names a queue was created or changed."""

    pod: Pod


class PodGone(msgspec.Struct, frozen=True, gc=False):
    """A pod left the API server, or our selection of it."""

    uid: PodUid


class PodGroupSeen(msgspec.Struct, frozen=True):
    """A PodGroup (scheduling.k8s.io) was created or changed. ``count``: its gang's minCount, 0 if it is no gang."""

    namespace: Namespace
    name: str
    count: int


class PodGroupGone(msgspec.Struct, frozen=True):
    """A PodGroup was deleted."""

    namespace: Namespace
    name: str


class StatefulSetSeen(msgspec.Struct, frozen=True):
    """A StatefulSet was created or changed.

    ``ordered``: it makes a pod only when the one before it is ready. Its pods are *replicas*, numbered from *start*.
    """

    uid: str
    name: str
    ordered: bool
    replicas: int = 1
    start: int = 0
    created_ms: int = 0


class StatefulSetGone(msgspec.Struct, frozen=True):
    """A StatefulSet was deleted, or makes no pods any more because it is being deleted."""

    uid: str


class NodeSeen(msgspec.Struct, frozen=True, gc=False):
    """A node joined or changed in something we read."""

    node: Node


class NodeGone(msgspec.Struct, frozen=True, gc=False):
    """A node was deleted."""

    name: NodeName


QuotaEvent = (
    FlavorSeen
    | FlavorGone
    | CohortSeen
    | CohortGone
    | ClusterQueueSeen
    | ClusterQueueGone
    | LocalQueueSeen
    | LocalQueueGone
    | NamespaceSeen
    | NamespaceGone
)
WorkloadEvent = WorkloadSeen | WorkloadGone | AdmissionRefused | EvictionRefused
EngineEvent = QuotaEvent | WorkloadEvent
PodEvent = (
    PriorityClassSeen
    | PriorityClassGone
    | PodSeen
    | PodGone
    | PodGroupSeen
    | PodGroupGone
    | StatefulSetSeen
    | StatefulSetGone
    | NodeSeen
    | NodeGone
)
Event = EngineEvent | PodEvent | JobEvent
