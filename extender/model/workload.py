"""What waits in a queue and is admitted: one pod, a pod group or a Job. Which of them it is matters to the shells only.

Records are frozen: a change is a new record, so a snapshot of the state is a copy of pointers.
"""

import msgspec

from extender.model.names import (
    ClusterQueueName,
    FlavorName,
    LocalQueueKey,
    ResourceName,
    WorkloadUid,
)
from extender.model.quota import Labels, Requirement, Toleration
from extender.model.reasons import Reason

Requests = tuple[tuple[ResourceName, int], ...]
"""Amounts per resource in canonical units, sorted by name."""


class PodSet(msgspec.Struct, frozen=True, gc=False):
    """Pods alike: what one asks for, how many there are, and what restricts their flavors.

    ``count_min`` None: all or nothing. ``affinity`` holds the required node affinity terms (any term will do).
    """

    name: str
    count: int
    requests: Requests
    count_min: int | None = None
    node_selector: Labels = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: tuple[tuple[Requirement, ...], ...] = ()


class PodSetAssignment(msgspec.Struct, frozen=True, gc=False):
    """What one pod set was given: a flavor per resource, the total charged per resource, and for how many pods."""

    name: str
    flavors: tuple[tuple[ResourceName, FlavorName], ...]
    usage: Requests
    count: int


class Admission(msgspec.Struct, frozen=True, gc=False):
    """Quota of *cluster_queue*, held since *at_ms* (milliseconds since the epoch)."""

    cluster_queue: ClusterQueueName
    assignments: tuple[PodSetAssignment, ...]
    at_ms: int


class Workload(msgspec.Struct, frozen=True, gc=False):
    """One workload as the world last showed it.

    ``created_ms`` orders the queue (the queue-order timestamp). ``admission`` is what is durably written, None while
    it waits. ``evicted``: told to stop, still holding its quota. ``held`` is why it must not be tried now (foreign
    gates, incomplete gang, back-off …), None if it may.
    """

    uid: WorkloadUid
    name: str
    queue: LocalQueueKey
    created_ms: int
    pod_sets: tuple[PodSet, ...]
    priority: int = 0
    admission: Admission | None = None
    evicted: bool = False
    held: Reason | None = None
