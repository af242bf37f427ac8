"""Jobs of any kind → facts, by the row of their kind.

A Job concerns us when it names a queue on its own metadata (annotation before label), or carries our label, and no
controller stands above it but a CronJob: any other owner would fight for the suspend field. Objects that are made from
our templates concern us too, for one thing: who their owner is.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from extender.kube import rules
from extender.kube.decode import Made, TypedCodec, labels_of, milliseconds
from extender.kube.requests import pod_requests
from extender.kube.wire import AffinityWire, IdentityWire, Int64, MetaWire, PodSpecWire, TolerationWire
from extender.model.errors import UNREADABLE, UserError
from extender.model.jobs import (
    ACTIVE_ANNOTATION,
    EQUAL_COMPLETIONS,
    EVICTED_ANNOTATION,
    MIN_PARALLELISM,
    REQUEUE_ANNOTATION,
    UNIT_ANNOTATION,
    Job,
    JobGone,
    JobPods,
    JobSeen,
    Kind,
    PodPriorityClassGone,
    PodPriorityClassSeen,
    PodSetRule,
)
from extender.model.names import LocalQueueName, Namespace
from extender.model.pods import (
    ADMISSION_ANNOTATION,
    ADMITTED_CONDITION,
    MANAGED_LABEL,
    MAX_EXEC_TIME,
    PRIORITY_CLASS,
    QUEUE_NAME,
    Owner,
)
from extender.model.quota import Requirement, Toleration
from extender.model.trees import Path, at, located
from extender.model.workload import Requests

Tree = dict[str, Any]

POD_SETS_MAX: Final = 18
COUNT_MAX: Final = 1_000_000
INT32_MAX: Final = 2**31 - 1
INDEXES_LENGTH_MAX: Final = 1 << 20
BUILT_IN_CONTROLLER: Final = "kubernetes.io/job-controller"
_RANGE = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?")
_SPEC = msgspec.json.Decoder(PodSpecWire)
_REQUIRED: Final = ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")


class JobWire(msgspec.Struct, gc=False):
    """A Job: metadata with names of its own, everything else as it comes."""

    metadata: MetaWire
    spec: Tree | None = None
    status: Tree | None = None


class PriorityClassWire(msgspec.Struct, rename="camel", gc=False):
    """A PriorityClass of Kubernetes."""

    metadata: MetaWire
    value: Int64 = 0
    global_default: bool | None = None


def codec(kind: Kind) -> TypedCodec[JobWire]:
    """The codec for objects of *kind*."""

    def make(wire: JobWire) -> Made:
        return _job(kind, wire)

    def bare(identity: IdentityWire, problem: str) -> Made:
        return None, problem

    return TypedCodec(JobWire, make=make, bare=bare, gone=lambda held: JobGone(held.uid))


def _job(kind: Kind, wire: JobWire) -> Made:
    meta = wire.metadata
    labels, annotations = meta.labels or {}, meta.annotations or {}
    tree: Tree = {"spec": wire.spec or {}, "status": wire.status or {}}
    owner = _owner(meta)
    queue = annotations.get(QUEUE_NAME) or labels.get(QUEUE_NAME) or ""
    managed = labels.get(MANAGED_LABEL) == "true"
    foreign = (owner is not None and owner.kind != "CronJob") or _managed_by_others(kind, tree)
    if foreign or not (queue or managed):
        return _child(kind, wire, tree, owner)
    problems: list[str] = []
    if queue and not rules.is_name(queue):
        problems.append(f"{QUEUE_NAME}: {queue[: rules.NAME_LENGTH_MAX]!r} is not a name of a LocalQueue")
    pods, pod_class = _pod_sets(kind, tree, problems)
    job = Job(
        kind=kind.name,
        uid=meta.uid,
        namespace=Namespace(sys.intern(meta.namespace)),
        name=meta.name,
        resource_version=meta.resource_version,
        created_ms=milliseconds(meta.creation_timestamp),
        queue=LocalQueueName(sys.intern(queue)),
        pods=pods,
        suspended=at(tree, kind.suspend) is True,
        managed=managed,
        admission=annotations.get(ADMISSION_ANNOTATION),
        evicted=annotations.get(EVICTED_ANNOTATION),
        requeue=annotations.get(REQUEUE_ANNOTATION),
        active=annotations.get(ACTIVE_ANNOTATION) != "false",
        running=sum(_numbers(tree, kind.active)),
        finished=_finished(kind, tree),
        deleting=meta.deletion_timestamp is not None,
        priority_class=labels.get(PRIORITY_CLASS) or annotations.get(PRIORITY_CLASS) or "",
        pod_priority_class=_text(at(tree, kind.priority_class)) if kind.priority_class else pod_class,
        run_s_max=_whole(labels.get(MAX_EXEC_TIME), MAX_EXEC_TIME, problems),
        owner=owner,
        suspend_parent=isinstance(at(tree, kind.suspend[:-1]), dict),
        annotated=meta.annotations is not None,
        labelled=meta.labels is not None,
        suspension_seen=True,
    )
    if kind.is_batch_job:
        job = _batch(job, tree, annotations, problems)
    problem = "; ".join(problems)
    return JobSeen(msgspec.structs.replace(job, problem=problem) if problem else job), problem


def _child(kind: Kind, wire: JobWire, tree: Tree, owner: Owner | None) -> Made:
    """What stands between a queued Job and its pods, known for its owner only."""
    if owner is None or not any(UNIT_ANNOTATION in _annotations(template) for *_, template in _templates(kind, tree)):
        return None, ""
    meta = wire.metadata
    child = Job(kind.name, meta.uid, Namespace(meta.namespace), meta.name, "", 0, LocalQueueName(""), owner=owner)
    return JobSeen(child), ""


def _managed_by_others(kind: Kind, tree: Tree) -> bool:
    other = at(tree, ("spec", "managedBy"))
    return kind.is_batch_job and bool(other) and other != BUILT_IN_CONTROLLER


def _batch(job: Job, tree: Tree, annotations: dict[str, str], problems: list[str]) -> Job:
    """What batch/v1 Job says beyond its row."""
    spec, status = tree["spec"], tree["status"]
    parallelism = _count(spec.get("parallelism"), 1)
    completions = _count(spec.get("completions"), None)
    indexed = spec.get("completionMode") == "Indexed"
    equal = annotations.get(EQUAL_COMPLETIONS) == "true"
    conditions = {_text(one.get("type")): one for one in _objects(status.get("conditions"))}
    ours = conditions.get(ADMITTED_CONDITION, {})
    return msgspec.structs.replace(
        job,
        started=bool(status.get("startTime")),
        suspension_seen=conditions.get("Suspended", {}).get("status") == "True",
        parallelism=parallelism,
        completions=completions,
        min_count=_whole(annotations.get(MIN_PARALLELISM), MIN_PARALLELISM, problems),
        equal_completions=equal and indexed,
        done=_indexes(status, completions or 0) if indexed else _count(status.get("succeeded"), 0) or 0,
        condition=_text(ours.get("message")),
    )


def _whole(text: str | None, key: str, problems: list[str]) -> int:
    """The whole number from 1 that *key* says; 0 if it says nothing, or something else, which is a problem."""
    if text is None:
        return 0
    if text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0:
        return int(text)
    problems.append(f"{key}: {text[:32]!r} is not a count; write 1 or more")
    return 0


def _indexes(status: Tree, completions: int) -> int:
    """How many indexes have succeeded or failed for good."""
    ranges = [*_ranges(_text(status.get("completedIndexes"))), *_ranges(_text(status.get("failedIndexes")))]
    covered, end = 0, -1
    for first, last in sorted(ranges):
        low, high = max(first, end + 1), min(last, completions - 1)
        covered += max(0, high - low + 1)
        end = max(end, high)
    return covered


def _ranges(text: str) -> Iterator[tuple[int, int]]:
    for part in text[:INDEXES_LENGTH_MAX].split(",") if text else ():
        match = _RANGE.fullmatch(part)
        if match:
            yield int(match[1]), int(match[2] or match[1])


def _pod_sets(kind: Kind, tree: Tree, problems: list[str]) -> tuple[tuple[JobPods, ...], str]:
    """The pod sets, and the first PriorityClass that a template names."""
    found, pod_class = [], ""
    missing = [".".join(path) for rule in kind.pod_sets for path in rule.required if at(tree, path) is None]
    if missing:
        problems.append(
            f"{missing[0]}: is missing; what it stands for is in another object, which a queue does not read"
        )
    for name, path, count, template in _templates(kind, tree):
        spec = template.get("spec")
        if not isinstance(spec, dict):
            problems.append(f"{'.'.join(path)}.spec: is missing")
            continue
        pod_class = pod_class or _text(spec.get("priorityClassName"))
        if count > COUNT_MAX:
            problems.append(f"{'.'.join(path)}: {count} pods; at most {COUNT_MAX}")
        found.append(_pods(name, path, min(count, COUNT_MAX), template, spec, problems))
    if len(found) > POD_SETS_MAX:
        problems.append(f"has {len(found)} pod sets; at most {POD_SETS_MAX}")
    if not found:
        problems.append("has no pod template where its kind should have one")
    names = [one.name for one in found]
    if len(set(names)) < len(names):
        problems.append("has two pod sets of one name")
    return tuple(found), pod_class


def _templates(kind: Kind, tree: Tree) -> Iterator[tuple[str, Path, int, Tree]]:
    """Name, path, count and template of each pod set."""
    for rule in kind.pod_sets:
        if not rule.each:
            path, single = located(tree, rule.template)
            if isinstance(single, dict):
                whole = _with_resources(single, at(tree, rule.requests)) if rule.requests else single
                yield _set_name(rule, len(kind.pod_sets)), path, _product(tree, rule), whole
            continue
        for key, element in _elements(at(tree, rule.each)):
            template = at(element, rule.template)
            if isinstance(template, dict):
                name = _text(at(element, rule.name)) if rule.name else key.lower()
                yield name or key, (*rule.each, key, *rule.template), _product(element, rule), template


def _with_resources(template: Tree, resources: object) -> Tree:
    """*template* with one container that asks for *resources*: it has none of its own."""
    spec = template.get("spec")
    return {**template, "spec": {**(spec if isinstance(spec, dict) else {}), "containers": [{"resources": resources}]}}


def _set_name(rule: PodSetRule, rules_count: int) -> str:
    """``main`` for the only one; of several, the part of the path that tells it from the others."""
    if rules_count == 1:
        return "main"
    return next((part for part in reversed(rule.template) if part != "template"), "main").lower()


def _elements(found: object) -> Iterable[tuple[str, Tree]]:
    if isinstance(found, list):
        return [(str(at), one) for at, one in enumerate(found) if isinstance(one, dict)]
    if isinstance(found, dict):
        return [(key, one) for key, one in found.items() if isinstance(one, dict)]
    return []


def _product(tree: Tree, rule: PodSetRule) -> int:
    total = 1
    for factor in rule.count:
        total *= min((value for path in factor if isinstance(value := at(tree, path), int)), default=1)
    return max(0, total)


def _pods(name: str, path: Path, count: int, template: Tree, spec: Tree, problems: list[str]) -> JobPods:
    metadata = template.get("metadata")
    where = f"{'.'.join(path)}.spec"
    requests: Requests = ()
    try:
        requests = pod_requests(_SPEC.decode(msgspec.json.encode(spec)))
    except UserError as error:
        problems.append(f"{'.'.join(path)}.{error}")
    except UNREADABLE:
        problems.append(f"{where}: cannot be read")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return JobPods(
        name=name,
        path=path,
        count=count,
        requests=requests,
        node_selector=labels_of(_strings(spec.get("nodeSelector"))),
        tolerations=_tolerations(spec.get("tolerations"), where, problems),
        affinity=_affinity(spec.get("affinity"), where, problems),
        labels=labels_of(_strings(labels)),
        annotations=tuple(sorted(_annotations(template).items())),
        has_metadata=isinstance(metadata, dict),
        gates=tuple(_text(gate.get("name")) for gate in _objects(spec.get("schedulingGates"))),
    )


def _tolerations(found: object, where: str, problems: list[str]) -> tuple[Toleration, ...]:
    try:
        wires = msgspec.convert(found or [], list[TolerationWire])
    except msgspec.ValidationError:
        problems.append(f"{where}.tolerations: cannot be read")
        return ()
    return tuple(rules.toleration(wire) for wire in wires)


def _affinity(found: object, where: str, problems: list[str]) -> tuple[tuple[Requirement, ...], ...]:
    if not found:
        return ()
    try:
        wire = msgspec.convert(found, AffinityWire)
    except msgspec.ValidationError:
        problems.append(f"{where}.affinity: cannot be read")
        return ()
    required = wire.node_affinity and wire.node_affinity.required_during_scheduling_ignored_during_execution
    terms = (required.node_selector_terms if required else None) or ()
    return tuple(tuple(rules.requirement(one) for one in term.match_expressions or ()) for term in terms)


def _finished(kind: Kind, tree: Tree) -> bool:
    if kind.finished_path:
        return _text(at(tree, kind.finished_path)) in kind.finished_values
    return any(
        _text(one.get("type")) in kind.finished_conditions and one.get("status") == "True"
        for one in _objects(at(tree, ("status", "conditions")))
    )


def _numbers(tree: Tree, paths: tuple[Path, ...]) -> Iterator[int]:
    for path in paths:
        yield _count(at(tree, path), 0) or 0


def _owner(meta: MetaWire) -> Owner | None:
    for owner in meta.owner_references or ():
        if owner.controller:
            return Owner(sys.intern(owner.kind), owner.name, owner.uid)
    return None


def _annotations(template: Tree) -> dict[str, str]:
    metadata = template.get("metadata")
    return _strings(metadata.get("annotations")) if isinstance(metadata, dict) else {}


def _strings(found: object) -> dict[str, str]:
    return {key: str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def _objects(found: object) -> list[Tree]:
    """The objects in a list, however odd the list is."""
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _text(found: object) -> str:
    return found if isinstance(found, str) else ""


def _count(found: object, default: int | None) -> int | None:
    return found if isinstance(found, int) and 0 <= found <= INT32_MAX else default


def _priority_class(wire: PriorityClassWire) -> Made:
    return PodPriorityClassSeen(wire.metadata.name, wire.value, bool(wire.global_default)), ""


POD_PRIORITY_CLASSES = TypedCodec(
    PriorityClassWire, make=_priority_class, gone=lambda held: PodPriorityClassGone(held.key)
)
