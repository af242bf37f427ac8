"""Pods → facts. The one place that knows where a pod says its queue, its group and its priority class.

A pod concerns us when it names a queue, or carries our label, our gate or our admission; all others are skipped. The
annotation comes before the label where both may name the queue or the group.
"""

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeVar

import msgspec

from extender.kube import rules
from extender.kube.decode import Made, TypedCodec, labels_of, milliseconds
from extender.kube.requests import pod_requests
from extender.kube.wire import (
    AffinityWire,
    ConditionWire,
    IdentityWire,
    MetaWire,
    PodSpecWire,
    PodStatusWire,
    PodWire,
    TolerationWire,
)
from extender.model.errors import UNREADABLE, UserError
from extender.model.events import PodGone, PodSeen
from extender.model.jobs import UNIT_ADMISSION_ANNOTATION, UNIT_ANNOTATION, UNIT_JOB
from extender.model.names import LocalQueueName, Namespace, NodeName, PodUid
from extender.model.pods import (
    ADMISSION_ANNOTATION,
    ADMITTED_CONDITION,
    ADOPTED_ANNOTATION,
    GATE,
    MANAGED_LABEL,
    MAX_EXEC_TIME,
    MIRROR_ANNOTATION,
    POD_GROUP_MIN_COUNT,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    PRIORITY_CLASS,
    QUEUE_NAME,
    UNIT_STATEFUL_SET,
    Owner,
    Pod,
)
from extender.model.quota import Requirement, Toleration
from extender.model.workload import Requests

T = TypeVar("T")

COUNT_DIGITS_MAX: Final = 9
RAW_BYTES_MAX: Final = 64 * 1024
_NO_STRINGS: Final[dict[str, str]] = {}
_NO_SPEC = PodSpecWire()
_NO_STATUS = PodStatusWire()
_TOLERATIONS = msgspec.json.Decoder(list[TolerationWire] | None)
_AFFINITY = msgspec.json.Decoder(AffinityWire | None)


def _pod(wire: PodWire) -> Made:
    meta = wire.metadata
    labels, annotations = meta.labels or _NO_STRINGS, meta.annotations or _NO_STRINGS
    spec, status = wire.spec or _NO_SPEC, wire.status or _NO_STATUS
    queue = annotations.get(QUEUE_NAME) or labels.get(QUEUE_NAME) or ""
    gates = tuple([gate.name for gate in spec.scheduling_gates]) if spec.scheduling_gates else ()
    admission = annotations.get(ADMISSION_ANNOTATION)
    managed = labels.get(MANAGED_LABEL) == "true"
    unit_kind = annotations.get(UNIT_ANNOTATION)
    unit = unit_kind == UNIT_JOB
    if not (queue or managed or unit or admission is not None or GATE in gates):
        return None, ""
    if MIRROR_ANNOTATION in annotations:
        return None, ""
    problems: list[str] = []
    group, group_total, group_min = _group(labels, annotations, problems)
    if queue and not _is_name(queue):
        problems.append(f"{QUEUE_NAME}: {queue[: rules.NAME_LENGTH_MAX]!r} is not a name of a LocalQueue")
    ready, told_reason, condition = _conditions(status.conditions)
    scheduling_group = spec.scheduling_group
    intern = sys.intern
    pod = Pod(
        uid=PodUid(meta.uid),
        namespace=Namespace(intern(meta.namespace)),
        name=meta.name,
        resource_version=meta.resource_version,
        created_ms=milliseconds(meta.creation_timestamp),
        queue=LocalQueueName(intern(queue)),
        requests=_requests(spec, problems),
        priority=spec.priority or 0,
        priority_class=intern(labels.get(PRIORITY_CLASS) or annotations.get(PRIORITY_CLASS) or ""),
        group=group,
        group_total=group_total,
        group_min=group_min,
        pod_group=(scheduling_group.pod_group_name or "") if scheduling_group else "",
        run_s_max=_count(labels, MAX_EXEC_TIME, problems),
        phase=intern(status.phase or "Pending"),
        node=NodeName(intern(spec.node_name)) if spec.node_name else None,
        deleting=meta.deletion_timestamp is not None,
        gates=gates,
        managed=managed,
        adopted=annotations.get(ADOPTED_ANNOTATION) == "true",
        admission=admission,
        ready=ready,
        node_selector=labels_of(spec.node_selector),
        tolerations=_part(spec.tolerations, _tolerations, "spec.tolerations", problems),
        affinity=_part(spec.affinity, _required_terms, "spec.affinity", problems),
        owner=_owner(meta),
        admitted_condition=condition,
        admitted_reason=told_reason,
        problem="; ".join(problems),
        unit=unit,
        unit_admission=intern(annotations.get(UNIT_ADMISSION_ANNOTATION, "")) if unit else "",
        of_set=unit_kind == UNIT_STATEFUL_SET,
    )
    return PodSeen(pod), pod.problem


def _bare_pod(identity: IdentityWire, problem: str) -> Made:
    """A pod of which nothing is known but that it exists is nobody's business; the problem is reported."""
    return None, problem


def _requests(spec: PodSpecWire, problems: list[str]) -> Requests:
    try:
        return pod_requests(spec)
    except UserError as error:
        problems.append(str(error))
        return ()


def _group(labels: dict[str, str], annotations: dict[str, str], problems: list[str]) -> tuple[str, int, int]:
    """The pod's group, how many pods it has, and how few may start; a count that is wrong is a problem, and 0."""
    group = annotations.get(POD_GROUP_NAME) or labels.get(POD_GROUP_NAME) or ""
    total = _count(annotations, POD_GROUP_TOTAL_COUNT, problems)
    least = _count(annotations, POD_GROUP_MIN_COUNT, problems)
    if not group:
        if total or least:
            name = POD_GROUP_TOTAL_COUNT if total else POD_GROUP_MIN_COUNT
            problems.append(f"{name} without {POD_GROUP_NAME}; set both or none")
        return "", 0, 0
    if not _is_name(group):
        problems.append(f"{POD_GROUP_NAME}: {group[: rules.NAME_LENGTH_MAX]!r} is not a name")
    if POD_GROUP_TOTAL_COUNT not in annotations:
        problems.append(f"{POD_GROUP_NAME} without annotation {POD_GROUP_TOTAL_COUNT}; write how many pods it has")
    elif total and least > total:
        problems.append(f"{POD_GROUP_MIN_COUNT}: {least} is above {POD_GROUP_TOTAL_COUNT} {total}")
    return group, total, least


def _count(marks: dict[str, str], name: str, problems: list[str]) -> int:
    text = marks.get(name)
    if text is None:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) <= COUNT_DIGITS_MAX and int(text) > 0):
        problems.append(f"{name}: {text[:32]!r} is not a count; write 1 or more")
        return 0
    return int(text)


_is_name = lru_cache(maxsize=4096)(rules.is_name)


def _conditions(found: list[ConditionWire] | None) -> tuple[bool, str, str]:
    """Whether the pod is ready, and the reason and message of our own condition."""
    ready, why, told = False, "", ""
    for condition in found or ():
        if condition.type == "Ready":
            ready = condition.status == "True"
        elif condition.type == ADMITTED_CONDITION:
            why, told = sys.intern(condition.reason or ""), condition.message or ""
    return ready, why, told


def _owner(meta: MetaWire) -> Owner | None:
    for owner in meta.owner_references or ():
        if owner.controller:
            return Owner(sys.intern(owner.kind), owner.name, owner.uid)
    return None


def _part(raw: msgspec.Raw, read: Callable[[bytes], tuple[T, ...]], where: str, problems: list[str]) -> tuple[T, ...]:
    """A part that repeats from pod to pod, read once per distinct text."""
    text = bytes(raw)
    if text in (b"null", b""):
        return ()
    try:
        return read(text)
    except UNREADABLE:
        problems.append(f"{where}: cannot be read")
        return ()


@lru_cache(maxsize=1024)
def _tolerations(text: bytes) -> tuple[Toleration, ...]:
    return tuple(rules.toleration(wire) for wire in _TOLERATIONS.decode(text) or ())


@lru_cache(maxsize=1024)
def _required_terms(text: bytes) -> tuple[tuple[Requirement, ...], ...]:
    wire = _AFFINITY.decode(text)
    node = wire.node_affinity if wire else None
    required = node.required_during_scheduling_ignored_during_execution if node else None
    return tuple(
        tuple(rules.requirement(expression) for expression in term.match_expressions or ())
        for term in (required.node_selector_terms if required else None) or ()
    )


CODEC = TypedCodec(PodWire, make=_pod, bare=_bare_pod, gone=lambda held: PodGone(PodUid(held.uid)))
