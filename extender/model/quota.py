"""Kueue's quota objects as frozen records: what an administrator wrote, defaults filled in, amounts parsed.

Only the fields that decide are here; ``kube.decode`` reads them from either API version. Sequences are tuples in the
order of the spec, since the order of flavors is the order in which they are tried.
"""

from enum import StrEnum

import msgspec

from extender.model.names import (
    ClusterQueueName,
    CohortName,
    FlavorName,
    FlavorResource,
    LocalQueueName,
    Namespace,
    ResourceName,
)

Labels = tuple[tuple[str, str], ...]
"""Labels or a nodeSelector, sorted by key."""


class Taint(msgspec.Struct, frozen=True, gc=False):
    """A taint of a flavor's nodes; ``effect`` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """A toleration of a pod or a flavor; empty ``key`` and ``effect`` are wildcards."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """One match expression: *key* stands in *operator* to *values* (In, NotIn, Exists, DoesNotExist, Gt, Lt)."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Selector(msgspec.Struct, frozen=True):
    """A label selector: all of ``labels`` and all of ``requirements``. An empty one matches everything."""

    labels: Labels = ()
    requirements: tuple[Requirement, ...] = ()


class ResourceFlavor(msgspec.Struct, frozen=True):
    """A kind of node: labels it carries, taints a pod must tolerate, tolerations it hands out."""

    name: FlavorName
    node_labels: Labels = ()
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""


class Quota(msgspec.Struct, frozen=True):
    """Quota of one flavor-resource at one node of the tree. Units: canonical amount of the resource.

    ``borrowing_limit`` None: no limit; ``lending_limit`` None: everything may be lent.
    """

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


class FlavorQuotas(msgspec.Struct, frozen=True):
    """What a node has of one flavor, by resource."""

    flavor: FlavorName
    quotas: tuple[tuple[ResourceName, Quota], ...]


class ResourceGroup(msgspec.Struct, frozen=True):
    """Resources that get their flavor together, and the flavors in the order in which they are tried."""

    covered: tuple[ResourceName, ...]
    flavors: tuple[FlavorQuotas, ...]


class FairWeight(msgspec.Struct, frozen=True):
    """The divisor of a share. ``value`` is the weight as IEEE double, as the reference computes with it."""

    value: float = 1.0


class Cohort(msgspec.Struct, frozen=True):
    """An inner node of the tree; ``parent`` None: a root.

    ``misconfigured`` is the text of what is wrong with the object, empty if nothing. A part that cannot be read counts
    as left out (no quota, no limits, weight 1): the members of the cohort go on with what they own.
    """

    name: CohortName
    parent: CohortName | None = None
    resource_groups: tuple[ResourceGroup, ...] = ()
    weight: FairWeight = FairWeight()
    misconfigured: str = ""


class QueueingStrategy(StrEnum):
    """What happens to a head that does not fit."""

    STRICT_FIFO = "StrictFIFO"
    BEST_EFFORT_FIFO = "BestEffortFIFO"


class StopPolicy(StrEnum):
    """Whether a queue admits: None does, Hold does not, HoldAndDrain also evicts."""

    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


class PreemptionPolicy(StrEnum):
    """Whose workloads may be taken, by priority and age."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"
    ANY = "Any"


class Preference(StrEnum):
    """What is worse when flavors are compared: to borrow or to preempt."""

    BORROWING_OVER_PREEMPTION = "BorrowingOverPreemption"
    PREEMPTION_OVER_BORROWING = "PreemptionOverBorrowing"


class Fungibility(msgspec.Struct, frozen=True):
    """When the scan over flavors goes on although a flavor would do (True: TryNextFlavor)."""

    next_when_borrowing: bool = False
    next_when_preempting: bool = True
    preference: Preference = Preference.BORROWING_OVER_PREEMPTION


class Preemption(msgspec.Struct, frozen=True):
    """The preemption policies of one ClusterQueue, seen from the preemptor's side."""

    within_cluster_queue: PreemptionPolicy = PreemptionPolicy.NEVER
    reclaim_within_cohort: PreemptionPolicy = PreemptionPolicy.NEVER
    borrow_within_cohort: PreemptionPolicy = PreemptionPolicy.NEVER
    priority_threshold_max: int | None = None


class ClusterQueue(msgspec.Struct, frozen=True):
    """A leaf of the tree. ``namespace_selector`` None matches no namespace, an empty one all.

    ``misconfigured`` is the text of what is wrong with the object, empty if nothing: such a queue is inactive, keeps
    what runs in it, and says why.
    """

    name: ClusterQueueName
    cohort: CohortName | None = None
    resource_groups: tuple[ResourceGroup, ...] = ()
    strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    namespace_selector: Selector | None = None
    fungibility: Fungibility = Fungibility()
    preemption: Preemption = Preemption()
    stop_policy: StopPolicy = StopPolicy.NONE
    weight: FairWeight = FairWeight()
    admission_checks: tuple[str, ...] = ()
    misconfigured: str = ""
    deleting: bool = False


class LocalQueue(msgspec.Struct, frozen=True):
    """A namespace's way into a ClusterQueue."""

    namespace: Namespace
    name: LocalQueueName
    cluster_queue: ClusterQueueName
    stop_policy: StopPolicy = StopPolicy.NONE


def quotas_by_flavor_resource(groups: tuple[ResourceGroup, ...]) -> dict[FlavorResource, Quota]:
    """The quotas of *groups*, keyed by flavor-resource, in spec order."""
    return {
        FlavorResource(flavor.flavor, resource): quota
        for group in groups
        for flavor in group.flavors
        for resource, quota in flavor.quotas
    }
