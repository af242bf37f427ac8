"""The fields we read, as they come over the wire, and nothing else: msgspec skips what is not named here.

Go leaves empty fields out and writes ``null`` for empty lists, so everything is optional. Parts that repeat from pod to
pod (resources, tolerations, affinity) stay raw bytes: they are the keys of caches.
"""

from typing import Annotated

import msgspec

Quantity = str | int | float
Strings = dict[str, str] | None
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A number that goes on into our records, as wide as Kubernetes has any."""


class _Wire(msgspec.Struct, rename="camel", gc=False):
    """Field names of the API in camel case; no cycles, so the collector need not look."""


class OwnerWire(_Wire):
    """An owner reference."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class MetaWire(_Wire):
    """Object metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Strings = None
    annotations: Strings = None
    owner_references: list[OwnerWire] | None = None


class IdentityWire(_Wire):
    """The least that tells an object: what is read when the rest cannot be."""

    name: str
    uid: str = ""
    namespace: str = ""
    resource_version: str = ""


class BareWire(_Wire):
    """An object of which only the identity is read."""

    metadata: IdentityWire


class VersionWire(_Wire):
    """The metadata of a bookmark."""

    resource_version: str = ""


class BookmarkWire(_Wire):
    """The object of a bookmark."""

    metadata: VersionWire


class RawLineWire(_Wire):
    """A watch line whose object is looked at later."""

    type: str
    object: msgspec.Raw = msgspec.Raw(b"null")


class SpecialWire(_Wire):
    """A custom resource: its spec is read field by field, so that one wrong field spoils nothing else."""

    metadata: MetaWire
    spec: msgspec.Raw = msgspec.Raw(b"null")
    value: msgspec.Raw = msgspec.Raw(b"null")


class MetaOnlyWire(_Wire):
    """PartialObjectMetadata."""

    metadata: MetaWire


# quota objects


class QuotaWire(_Wire):
    """Quota of one resource."""

    name: str = ""
    nominal_quota: Quantity | None = None
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


class FlavorQuotasWire(_Wire):
    """Quota of one flavor."""

    name: str = ""
    resources: list[QuotaWire] | None = None


class GroupWire(_Wire):
    """A resource group."""

    covered_resources: list[str] | None = None
    flavors: list[FlavorQuotasWire] | None = None


class FairSharingWire(_Wire):
    """``spec.fairSharing``."""

    weight: Quantity | None = None


class FungibilityWire(_Wire):
    """``spec.flavorFungibility``."""

    when_can_borrow: str | None = None
    when_can_preempt: str | None = None
    preference: str | None = None


class BorrowWire(_Wire):
    """``spec.preemption.borrowWithinCohort``."""

    policy: str | None = None
    max_priority_threshold: int | None = None


class PreemptionWire(_Wire):
    """``spec.preemption``."""

    reclaim_within_cohort: str | None = None
    within_cluster_queue: str | None = None
    borrow_within_cohort: BorrowWire | None = None


class CheckWire(_Wire):
    """One entry of ``spec.admissionChecksStrategy.admissionChecks``."""

    name: str = ""
    on_flavors: list[str] | None = None


class ChecksWire(_Wire):
    """``spec.admissionChecksStrategy``."""

    admission_checks: list[CheckWire] | None = None


class ExpressionWire(_Wire):
    """A match expression of a label selector or a node selector."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class SelectorWire(_Wire):
    """A label selector."""

    match_labels: Strings = None
    match_expressions: list[ExpressionWire] | None = None


class TaintWire(_Wire):
    """A taint."""

    key: str = ""
    value: str | None = None
    effect: str = ""


class TolerationWire(_Wire):
    """A toleration."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: Int64 | None = None


# pods and nodes


class NamedWire(_Wire):
    """A scheduling gate."""

    name: str = ""


class ResourcesWire(_Wire):
    """``resources`` of a container or a pod."""

    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class ContainerWire(_Wire):
    """A container. Its resources are the same text in every pod of a template."""

    resources: msgspec.Raw = msgspec.Raw(b"null")
    restart_policy: str | None = None


class ConditionWire(_Wire):
    """A condition."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class SchedulingGroupWire(_Wire):
    """The PodGroup that a pod belongs to."""

    pod_group_name: str | None = None


class PodSpecWire(_Wire):
    """A pod's spec."""

    node_name: str | None = None
    priority: Int64 | None = None
    containers: list[ContainerWire] | None = None
    init_containers: list[ContainerWire] | None = None
    overhead: msgspec.Raw = msgspec.Raw(b"null")
    resources: msgspec.Raw = msgspec.Raw(b"null")
    scheduling_gates: list[NamedWire] | None = None
    node_selector: Strings = None
    scheduling_group: SchedulingGroupWire | None = None
    tolerations: msgspec.Raw = msgspec.Raw(b"null")
    affinity: msgspec.Raw = msgspec.Raw(b"null")


class PodStatusWire(_Wire):
    """A pod's status."""

    phase: str | None = None
    conditions: list[ConditionWire] | None = None


class PodWire(_Wire):
    """A pod."""

    metadata: MetaWire
    spec: PodSpecWire | None = None
    status: PodStatusWire | None = None


class TermWire(_Wire):
    """A node selector term; ``matchFields`` names single nodes and says nothing of flavors."""

    match_expressions: list[ExpressionWire] | None = None


class NodeSelectorWire(_Wire):
    """``requiredDuringSchedulingIgnoredDuringExecution`` of a node affinity."""

    node_selector_terms: list[TermWire] | None = None


class NodeAffinityWire(_Wire):
    """``affinity.nodeAffinity``."""

    required_during_scheduling_ignored_during_execution: NodeSelectorWire | None = None


class AffinityWire(_Wire):
    """``spec.affinity``."""

    node_affinity: NodeAffinityWire | None = None


class NodeSpecWire(_Wire):
    """A node's spec."""

    taints: list[TaintWire] | None = None
    unschedulable: bool | None = None


class NodeStatusWire(_Wire):
    """A node's status."""

    allocatable: dict[str, Quantity] | None = None


class NodeWire(_Wire):
    """A node."""

    metadata: MetaWire
    spec: NodeSpecWire | None = None
    status: NodeStatusWire | None = None
