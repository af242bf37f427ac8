"""Acts, in the imperative: what the engine and the books ask the shells to do. Each is idempotent.

``Admit`` and ``Evict`` are the engine's, about workloads. The books turn them into writes about single pods.
"""

from enum import StrEnum

import msgspec

from extender.model.jobs import JobEffect
from extender.model.names import Namespace, PodUid, WorkloadUid
from extender.model.quota import Labels, Toleration
from extender.model.workload import Admission


class EvictionReason(StrEnum):
    """Why a workload is told to stop; the first four are preemption, with the reference's words."""

    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
    CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped"
    LOCAL_QUEUE_STOPPED = "LocalQueueStopped"
    PODS_READY_TIMEOUT = "PodsReadyTimeout"
    REQUEUING_LIMIT_EXCEEDED = "DeactivatedDueToRequeuingLimitExceeded"
    MAXIMUM_EXECUTION_TIME_EXCEEDED = "DeactivatedDueToMaximumExecutionTimeExceeded"

    @property
    def preempts(self) -> bool:
        """Whether it makes room for a preemptor."""
        return self in _PREEMPTIONS


_PREEMPTIONS = frozenset(
    {
        EvictionReason.IN_CLUSTER_QUEUE,
        EvictionReason.IN_COHORT_RECLAMATION,
        EvictionReason.IN_COHORT_FAIR_SHARING,
        EvictionReason.IN_COHORT_RECLAIM_WHILE_BORROWING,
    }
)


class Admit(msgspec.Struct, frozen=True, gc=False):
    """Give this workload its quota: it is charged already (assumed)."""

    uid: WorkloadUid
    admission: Admission


class Evict(msgspec.Struct, frozen=True, gc=False):
    """Stop this workload; it keeps its charge until it is gone. *preemptor* is None when a queue was stopped."""

    uid: WorkloadUid
    preemptor: WorkloadUid | None
    reason: EvictionReason
    message: str


EngineEffect = Admit | Evict


class UngatePod(msgspec.Struct, frozen=True, gc=False):
    """One PATCH: our gate goes, the flavor's node labels and tolerations and the admission come.

    Guarded by uid and resource version. ``tolerations`` is the whole new list, None if it does not change.
    """

    workload: WorkloadUid
    uid: PodUid
    namespace: Namespace
    name: str
    resource_version: str
    admission: str
    node_selector: Labels
    tolerations: tuple[Toleration, ...] | None


class AdoptPod(msgspec.Struct, frozen=True, gc=False):
    """Mark a pod that arrived without us (label and adopted annotation), so that the watches see it.

    ``admission`` is what it uses if it has a node already (ADR 0050), None if it has to wait for an admission.
    ``again``: it is ours already, and only its admission is written anew (ADR 0062).
    """

    uid: PodUid
    namespace: Namespace
    name: str
    resource_version: str
    admission: str | None = None
    again: bool = False


class EvictPod(msgspec.Struct, frozen=True, gc=False):
    """Evict by the Eviction API, guarded by uid."""

    workload: WorkloadUid
    uid: PodUid
    namespace: Namespace
    name: str
    reason: EvictionReason
    message: str


class SetPodCondition(msgspec.Struct, frozen=True, gc=False):
    """Say on the pod why it waits (or that it is admitted). The newest per pod is enough."""

    uid: PodUid
    namespace: Namespace
    name: str
    status: bool
    reason: str
    message: str


class RecordEvent(msgspec.Struct, frozen=True, gc=False):
    """A Kubernetes event on a pod, or on an object of another kind. ``warning`` selects its type."""

    uid: PodUid
    namespace: Namespace
    name: str
    reason: str
    message: str
    warning: bool = False
    kind: str = "Pod"
    api_version: str = "v1"


class SetQueueStatus(msgspec.Struct, frozen=True, gc=False):
    """Write the status of a ClusterQueue, Cohort or LocalQueue; ``status`` is its JSON as bytes."""

    kind: str
    namespace: str
    name: str
    status: bytes


PodEffect = UngatePod | AdoptPod | EvictPod | SetPodCondition | RecordEvent | JobEffect
"""What the books ask for: about pods, and about the Jobs that make them."""
Effect = PodEffect | SetQueueStatus
