"""Pods and nodes as flat records: only what decides, names and amounts already parsed.

There are tens of thousands of them and none can be part of a cycle, so the collector does not look at them (``gc``).
"""

import msgspec

from extender.model.names import LocalQueueName, Namespace, NodeName, PodUid, ResourceName
from extender.model.quota import Labels, Requirement, Taint, Toleration

GATE = "cohort-extender.io/admission"
"""Our scheduling gate. Gates of others are never touched."""
MANAGED_LABEL = "cohort-extender.io/managed"
"""What the watches select; ``"true"`` on every pod that names a queue."""
ADMISSION_ANNOTATION = "cohort-extender.io/admission"
"""The admission, the only durable state: see ``pods.admission``."""
ADMITTED_CONDITION = "cohort-extender.io/Admitted"
"""Why the pod waits, in one sentence."""
ADOPTED_ANNOTATION = "cohort-extender.io/adopted"
"""``"true"`` on a pod that arrived ungated (nobody was there to gate it) and that we took in afterwards."""
MARKER_RESOURCE = "cohort-extender.io/queued-pod"
"""An extended resource that no node offers and no quota counts: kube-scheduler asks us about pods that request it.

Written at creation beside the gate (ADR 0030). Whoever reads a pod's requests leaves it out.
"""
UNIT_STATEFUL_SET = "statefulset"
"""Value of the annotation ``cohort-extender.io/unit``: the pod is one of a StatefulSet that is admitted as a whole."""
QUEUE_NAME = "kueue.x-k8s.io/queue-name"
PRIORITY_CLASS = "kueue.x-k8s.io/priority-class"
POD_GROUP_NAME = "kueue.x-k8s.io/pod-group-name"
POD_GROUP_TOTAL_COUNT = "kueue.x-k8s.io/pod-group-total-count"
POD_GROUP_MIN_COUNT = "cohort-extender.io/pod-group-min-count"
"""How few pods of a group of like pods may start (partial admission); the reference has no such word for groups."""
MAX_EXEC_TIME = "kueue.x-k8s.io/max-exec-time-seconds"
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
"""On a static pod's image in the API server: the kubelet runs it whatever anybody says, so it is never ours."""


class Owner(msgspec.Struct, frozen=True, gc=False):
    """The controller that owns a pod."""

    kind: str
    name: str
    uid: str


class Pod(msgspec.Struct, frozen=True, gc=False):
    """One pod that names a queue, as the API server last showed it.

    ``managed``: it carries our label. ``adopted``: it arrived ungated and was taken in afterwards.

    ``requests`` are one pod's, in canonical units, by the Kubernetes formula. ``admission`` is the raw annotation, None
    if there is none. ``queue`` empty: the pod names none itself. ``group_total`` 0: no group or no valid count;
    ``group_min`` 0: all of it. ``pod_group`` is the PodGroup (scheduling.k8s.io) that the pod names in its spec, empty
    if none. ``run_s_max`` is how long it may run, 0: no limit.
    ``admitted_condition`` and ``admitted_reason`` are the message and reason of our condition as last written, empty if
    there is none; the reason is ``Admitted`` where its status is True. ``affinity`` holds
    the required node affinity terms (any term will do). ``problem`` is what is wrong with the pod's own words (an
    unreadable count, a request above its limit), or empty. ``unit``: it is part of a queued Job and
    no workload of its own; ``unit_admission`` is the annotation that says under which admission of it it was made.
    ``of_set``: its StatefulSet is admitted as a whole.
    """

    uid: PodUid
    namespace: Namespace
    name: str
    resource_version: str
    created_ms: int
    queue: LocalQueueName
    requests: tuple[tuple[ResourceName, int], ...]
    priority: int = 0
    priority_class: str = ""
    group: str = ""
    group_total: int = 0
    group_min: int = 0
    pod_group: str = ""
    run_s_max: int = 0
    phase: str = "Pending"
    node: NodeName | None = None
    deleting: bool = False
    gates: tuple[str, ...] = ()
    managed: bool = False
    adopted: bool = False
    admission: str | None = None
    ready: bool = False
    node_selector: Labels = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: tuple[tuple[Requirement, ...], ...] = ()
    owner: Owner | None = None
    admitted_condition: str = ""
    admitted_reason: str = ""
    problem: str = ""
    unit: bool = False
    unit_admission: str = ""
    of_set: bool = False

    @property
    def gated(self) -> bool:
        """Whether our gate still holds it."""
        return GATE in self.gates

    @property
    def ended(self) -> bool:
        """Whether it uses nothing any more: finished, or deleted before it got a node."""
        return self.phase in ("Succeeded", "Failed") or (self.deleting and self.node is None)


class Node(msgspec.Struct, frozen=True, gc=False):
    """A node: its labels, taints and what it can give, in canonical units."""

    name: NodeName
    labels: Labels = ()
    taints: tuple[Taint, ...] = ()
    allocatable: tuple[tuple[ResourceName, int], ...] = ()
    unschedulable: bool = False
