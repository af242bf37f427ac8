"""Kueue's quota objects and namespaces → facts. The schema is the union of v1beta1 and v1beta2.

What is wrong with an object is said in words that name the field, and stays with that object: a ClusterQueue and a
Cohort carry it (``misconfigured``), a ResourceFlavor or a WorkloadPriorityClass counts as absent and the problem is
reported. Source: API reference, sections 1 to 7.
"""

from typing import Final

import msgspec

from extender.kube import rules
from extender.kube.decode import Fields, Made, Problems, TypedCodec, labels_of
from extender.kube.decode_groups import Owner, resource_groups
from extender.kube.reflector import Held
from extender.kube.wire import (
    ChecksWire,
    FairSharingWire,
    FungibilityWire,
    GroupWire,
    IdentityWire,
    MetaOnlyWire,
    PreemptionWire,
    SelectorWire,
    SpecialWire,
    TaintWire,
    TolerationWire,
)
from extender.model.events import (
    ClusterQueueGone,
    ClusterQueueSeen,
    CohortGone,
    CohortSeen,
    Event,
    FlavorGone,
    FlavorSeen,
    LocalQueueGone,
    LocalQueueSeen,
    NamespaceGone,
    NamespaceSeen,
    PriorityClassGone,
    PriorityClassSeen,
)
from extender.model.names import (
    ClusterQueueName,
    CohortName,
    FlavorName,
    LocalQueueKey,
    LocalQueueName,
    Namespace,
)
from extender.model.quota import (
    ClusterQueue,
    Cohort,
    FairWeight,
    Fungibility,
    LocalQueue,
    Preemption,
    PreemptionPolicy,
    Preference,
    QueueingStrategy,
    ResourceFlavor,
    ResourceGroup,
    StopPolicy,
)

_TEXT = msgspec.json.Decoder(str).decode
_TEXTS = msgspec.json.Decoder(list[str]).decode
_INT = msgspec.json.Decoder(int).decode
_STRINGS = msgspec.json.Decoder(dict[str, str]).decode
_GROUPS = msgspec.json.Decoder(list[GroupWire]).decode
_FAIR = msgspec.json.Decoder(FairSharingWire).decode
_FUNGIBILITY = msgspec.json.Decoder(FungibilityWire).decode
_PREEMPTION = msgspec.json.Decoder(PreemptionWire).decode
_CHECKS = msgspec.json.Decoder(ChecksWire).decode
_SELECTOR = msgspec.json.Decoder(SelectorWire).decode
_TAINTS = msgspec.json.Decoder(list[TaintWire]).decode
_TOLERATIONS = msgspec.json.Decoder(list[TolerationWire]).decode

_STRATEGIES = {word.value: word for word in QueueingStrategy}
_STOPS = {word.value: word for word in StopPolicy}
_PREFERENCES = {word.value: word for word in Preference}
_BORROW_WORDS = {"MayStopSearch": False, "TryNextFlavor": True, "Borrow": False}
_PREEMPT_WORDS = {"MayStopSearch": False, "TryNextFlavor": True, "Preempt": False}
_RECLAIM_WORDS = {
    word.value: word for word in (PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY)
}
_WITHIN_WORDS = {
    word.value: word
    for word in (
        PreemptionPolicy.NEVER,
        PreemptionPolicy.LOWER_PRIORITY,
        PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
    )
}
_BORROW_WITHIN_WORDS = {word.value: word for word in (PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY)}
_INT32 = range(-(2**31), 2**31)
CHECKS_MAX: Final = 64


class _Spec:
    """A spec under reading: its fields, and what is wrong with them."""

    def __init__(self, wire: SpecialWire) -> None:
        self.problems = Problems()
        self.fields = Fields(wire.spec, where="spec", problems=self.problems)

    def name(self, field: str) -> str:
        return rules.name(self.fields.read(field, _TEXT), where=f"spec.{field}", problems=self.problems)

    def stop_policy(self) -> StopPolicy:
        """None when left out; an unknown word holds the queue, which is the safe side."""
        text = self.fields.read("stopPolicy", _TEXT)
        if text and text not in _STOPS:
            self.problems.add("spec.stopPolicy", f"{text!r} is unknown; write {' or '.join(_STOPS)}")
            return StopPolicy.HOLD
        return _STOPS[text] if text else StopPolicy.NONE

    def parent(self, newer: str, older: str) -> CohortName | None:
        """The parent under its two names; they may not say two things."""
        first, second = self.name(newer), self.name(older)
        if first and second and first != second:
            self.problems.add(f"spec.{older}", f"{second!r} and spec.{newer} {first!r} differ; keep one")
        chosen = first or second
        return CohortName(chosen) if chosen else None

    def groups(self, owner: Owner) -> tuple[ResourceGroup, ...]:
        found = self.fields.read("resourceGroups", _GROUPS)
        return resource_groups(found, owner=owner, problems=self.problems) if found else ()

    def weight(self) -> FairWeight:
        fair = self.fields.read("fairSharing", _FAIR)
        return rules.weight(fair.weight if fair else None, where="spec.fairSharing.weight", problems=self.problems)


def _flavor(wire: SpecialWire) -> Made:
    spec = _Spec(wire)
    fields, problems = spec.fields, spec.problems
    labels = fields.read("nodeLabels", _STRINGS) or {}
    flavor = ResourceFlavor(
        name=FlavorName(wire.metadata.name),
        node_labels=rules.node_labels(labels, where="spec.nodeLabels", problems=problems),
        node_taints=rules.taints(fields.read("nodeTaints", _TAINTS) or [], where="spec.nodeTaints", problems=problems),
        tolerations=rules.tolerations(
            fields.read("tolerations", _TOLERATIONS) or [], where="spec.tolerations", problems=problems
        ),
        topology=spec.name("topologyName"),
    )
    if flavor.topology and not flavor.node_labels:
        problems.add("spec.topologyName", "needs at least one label in spec.nodeLabels")
    return (None if problems else FlavorSeen(flavor)), problems.text


def _cohort(wire: SpecialWire) -> Made:
    spec = _Spec(wire)
    parent = spec.parent("parentName", "parent")
    cohort = Cohort(
        name=CohortName(wire.metadata.name),
        parent=parent,
        resource_groups=spec.groups(Owner(has_parent=parent is not None, is_cohort=True)),
        weight=spec.weight(),
        misconfigured=spec.problems.text,
    )
    return CohortSeen(cohort), cohort.misconfigured


def _bare_cohort(identity: IdentityWire, problem: str) -> Made:
    return CohortSeen(Cohort(CohortName(identity.name), misconfigured=problem)), problem


def _cluster_queue(wire: SpecialWire) -> Made:
    spec = _Spec(wire)
    fields, problems = spec.fields, spec.problems
    cohort = spec.parent("cohortName", "cohort")
    groups = spec.groups(Owner(has_parent=cohort is not None))
    namespaces = fields.read("namespaceSelector", _SELECTOR)
    queue = ClusterQueue(
        name=ClusterQueueName(wire.metadata.name),
        cohort=cohort,
        resource_groups=groups,
        strategy=rules.choice(
            fields.read("queueingStrategy", _TEXT),
            _STRATEGIES,
            where="spec.queueingStrategy",
            problems=problems,
            default=QueueingStrategy.BEST_EFFORT_FIFO,
        ),
        namespace_selector=(
            None
            if namespaces is None
            else rules.selector(namespaces, where="spec.namespaceSelector", problems=problems)
        ),
        fungibility=_fungibility(fields.read("flavorFungibility", _FUNGIBILITY), problems),
        preemption=_preemption(fields.read("preemption", _PREEMPTION), problems),
        stop_policy=spec.stop_policy(),
        weight=spec.weight(),
        admission_checks=_checks(spec, groups),
        deleting=wire.metadata.deletion_timestamp is not None,
    )
    if problems:
        queue = msgspec.structs.replace(queue, misconfigured=problems.text)
    return ClusterQueueSeen(queue), problems.text


def _bare_cluster_queue(identity: IdentityWire, problem: str) -> Made:
    return ClusterQueueSeen(ClusterQueue(ClusterQueueName(identity.name), misconfigured=problem)), problem


def _fungibility(wire: FungibilityWire | None, problems: Problems) -> Fungibility:
    if wire is None:
        return Fungibility()
    where = "spec.flavorFungibility"
    made = Fungibility(
        next_when_borrowing=rules.choice(
            wire.when_can_borrow, _BORROW_WORDS, where=f"{where}.whenCanBorrow", problems=problems, default=False
        ),
        next_when_preempting=rules.choice(
            wire.when_can_preempt, _PREEMPT_WORDS, where=f"{where}.whenCanPreempt", problems=problems, default=True
        ),
        preference=rules.choice(
            wire.preference,
            _PREFERENCES,
            where=f"{where}.preference",
            problems=problems,
            default=Preference.BORROWING_OVER_PREEMPTION,
        ),
    )
    if wire.preference and not (made.next_when_borrowing and made.next_when_preempting):
        problems.add(f"{where}.preference", "needs whenCanBorrow and whenCanPreempt to be TryNextFlavor")
    return made


def _preemption(wire: PreemptionWire | None, problems: Problems) -> Preemption:
    if wire is None:
        return Preemption()
    where, never = "spec.preemption", PreemptionPolicy.NEVER
    borrow = wire.borrow_within_cohort
    made = Preemption(
        within_cluster_queue=rules.choice(
            wire.within_cluster_queue,
            _WITHIN_WORDS,
            where=f"{where}.withinClusterQueue",
            problems=problems,
            default=never,
        ),
        reclaim_within_cohort=rules.choice(
            wire.reclaim_within_cohort,
            _RECLAIM_WORDS,
            where=f"{where}.reclaimWithinCohort",
            problems=problems,
            default=never,
        ),
        borrow_within_cohort=rules.choice(
            borrow.policy if borrow else None,
            _BORROW_WITHIN_WORDS,
            where=f"{where}.borrowWithinCohort.policy",
            problems=problems,
            default=never,
        ),
        priority_threshold_max=borrow.max_priority_threshold if borrow else None,
    )
    if made.reclaim_within_cohort is never and made.borrow_within_cohort is not never:
        problems.add(f"{where}.borrowWithinCohort", "has no meaning while reclaimWithinCohort is Never")
    if made.priority_threshold_max is not None and made.priority_threshold_max not in _INT32:
        problems.add(f"{where}.borrowWithinCohort.maxPriorityThreshold", "does not fit into 32 bits")
    return made


def _checks(spec: _Spec, groups: tuple[ResourceGroup, ...]) -> tuple[str, ...]:
    """The names of the admission checks, from either version's field."""
    wire = spec.fields.read("admissionChecksStrategy", _CHECKS)
    listed = (wire.admission_checks if wire else None) or []
    names = [check.name for check in listed] + (spec.fields.read("admissionChecks", _TEXTS) or [])
    flavors = {flavor.flavor for group in groups for flavor in group.flavors}
    where = "spec.admissionChecksStrategy.admissionChecks"
    if len(names) > CHECKS_MAX:
        spec.problems.add(where, f"has {len(names)} checks; at most {CHECKS_MAX}")
    for at, check in enumerate(listed):
        for flavor in check.on_flavors or ():
            if groups and flavor not in flavors:
                spec.problems.add(f"{where}[{at}].onFlavors", f"{flavor!r} is no flavor of this ClusterQueue")
    return tuple(dict.fromkeys(names))


def _local_queue(wire: SpecialWire) -> Made:
    spec = _Spec(wire)
    queue = LocalQueue(
        namespace=Namespace(wire.metadata.namespace),
        name=LocalQueueName(wire.metadata.name),
        cluster_queue=ClusterQueueName(spec.name("clusterQueue")),
        stop_policy=spec.stop_policy(),
    )
    return LocalQueueSeen(queue), spec.problems.text


def _bare_local_queue(identity: IdentityWire, problem: str) -> Made:
    namespace, name = Namespace(identity.namespace), LocalQueueName(identity.name)
    return LocalQueueSeen(LocalQueue(namespace, name, ClusterQueueName(""))), problem


def _priority_class(wire: SpecialWire) -> Made:
    try:
        value = _INT(wire.value)
    except msgspec.MsgspecError:
        return None, "value: is not an integer"
    if value not in _INT32:
        return None, "value: does not fit into 32 bits"
    return PriorityClassSeen(wire.metadata.name, value), ""


def _namespace(wire: MetaOnlyWire) -> Made:
    return NamespaceSeen(Namespace(wire.metadata.name), labels_of(wire.metadata.labels)), ""


def _bare_namespace(identity: IdentityWire, problem: str) -> Made:
    return NamespaceSeen(Namespace(identity.name), ()), problem


def _local_queue_gone(held: Held) -> Event:
    namespace, _, name = held.key.partition("/")
    return LocalQueueGone(LocalQueueKey(Namespace(namespace), LocalQueueName(name)))


FLAVORS = TypedCodec(SpecialWire, make=_flavor, gone=lambda held: FlavorGone(FlavorName(held.key)))
COHORTS = TypedCodec(SpecialWire, make=_cohort, bare=_bare_cohort, gone=lambda held: CohortGone(CohortName(held.key)))
CLUSTER_QUEUES = TypedCodec(
    SpecialWire,
    make=_cluster_queue,
    bare=_bare_cluster_queue,
    gone=lambda held: ClusterQueueGone(ClusterQueueName(held.key)),
)
LOCAL_QUEUES = TypedCodec(SpecialWire, make=_local_queue, bare=_bare_local_queue, gone=_local_queue_gone)
PRIORITY_CLASSES = TypedCodec(SpecialWire, make=_priority_class, gone=lambda held: PriorityClassGone(held.key))
NAMESPACES = TypedCodec(
    MetaOnlyWire, make=_namespace, bare=_bare_namespace, gone=lambda held: NamespaceGone(Namespace(held.key))
)
