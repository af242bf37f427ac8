"""The webhook that holds a new Job, of any kind in the table: suspended, and its pod templates marked. Sans-IO.

Twin of the policies in ``manifests/components/policy-gate`` for batch/v1 Job. As for pods it is constant time, calls
nobody and remembers nothing. Only creation is looked at: later changes are the guard policy's.
Source: jobs specification, sections 1 and 8.
"""

from typing import Any

import msgspec

from extender.model.errors import UserError
from extender.model.jobs import (
    EVICTED_ANNOTATION,
    REQUEUE_ANNOTATION,
    UNIT_ADMISSION_ANNOTATION,
    UNIT_ANNOTATION,
    UNIT_JOB,
    Kind,
    PodSetRule,
)
from extender.model.pods import ADMISSION_ANNOTATION, MANAGED_LABEL, MARKER_RESOURCE, QUEUE_NAME
from extender.model.trees import Path, add_missing, at, located
from extender.serve.envelope import Question, read
from extender.serve.http import Reply, refuse
from extender.serve.marks import escape
from extender.serve.review import Operation, Outcome, write_review
from extender.serve.webhook import DEFAULT_QUEUE, Queues

Tree = dict[str, Any]
BUILT_IN_CONTROLLER = "kubernetes.io/job-controller"
_OURS = (ADMISSION_ANNOTATION, EVICTED_ANNOTATION, REQUEUE_ANNOTATION)


_REVIEW = msgspec.json.Decoder(Question[Tree])


class JobWebhook:
    """Holds new Jobs of *kinds*."""

    def __init__(self, queues: Queues, kinds: tuple[Kind, ...]) -> None:
        self._queues = queues
        self._kinds = {(kind.group, kind.kind): kind for kind in kinds}

    def mutate(self, body: bytes) -> Reply:
        """POST: suspend and mark a new Job that is to wait in a queue."""
        try:
            request = read(_REVIEW, body)
        except UserError as error:
            return refuse(400, str(error))
        kind = self._kinds.get((request.kind.group, request.kind.kind))
        outcome = Outcome()
        if kind and request.object and request.operation == "CREATE" and not request.sub_resource:
            outcome = self._held(kind, request.object, request.namespace)
        return Reply(200, write_review(request.uid, outcome), "changed" if outcome.patch else "allowed")

    def _held(self, kind: Kind, found: Tree, namespace: str) -> Outcome:
        metadata = _map(found, "metadata")
        if is_controlled(metadata) or (kind.is_batch_job and is_managed_by_others(found)):
            return Outcome()
        queue = _word(metadata, QUEUE_NAME)
        added = _added(kind, found)
        templates = list(_templates(kind, found))
        below = any(_word(_map(template, "metadata"), QUEUE_NAME) for _, template in templates)
        if not queue and (below or not self._queues.has_default_queue(namespace)):
            return Outcome()
        operations = [*_own(metadata, queue), *_suspended(kind.suspend, found), *added]
        for path, template in templates:
            operations += _marked("".join(f"/{escape(part)}" for part in path), template)
        return Outcome(patch=tuple(operations), warnings=_warnings(metadata, below=below))


def _added(kind: Kind, found: Tree) -> list[Operation]:
    """The elements of lists that are missing; *found* has them afterwards."""
    operations: list[Operation] = []
    for one in kind.additions:
        there = add_missing(found, one.path, key=one.key, item=one.item)
        if there is not None:
            where = "".join(f"/{escape(part)}" for part in one.path)
            value = one.item if there else [one.item]
            operations.append({"op": "add", "path": f"{where}/-" if there else where, "value": value})
    return operations


def _own(metadata: Tree, queue: str) -> list[Operation]:
    """The Job's own marks: label and queue written, an admission that came with it taken away."""
    labels, annotations = _map(metadata, "labels"), _map(metadata, "annotations")
    operations: list[Operation] = []
    if labels.get(MANAGED_LABEL) != "true":
        operations.append(_put("/metadata/labels", labels, {MANAGED_LABEL: "true"}))
    operations += [
        {"op": "remove", "path": f"/metadata/annotations/{escape(key)}"} for key in _OURS if key in annotations
    ]
    if not queue:
        kept = {key: value for key, value in annotations.items() if key not in _OURS}
        operations.append(_put("/metadata/annotations", kept or annotations, {QUEUE_NAME: DEFAULT_QUEUE}))
    return operations


def _suspended(path: Path, found: Tree) -> list[Operation]:
    """The suspend field set, with the objects around it that are missing."""
    tree, at = found, ""
    for index, part in enumerate(path[:-1]):
        inner = tree.get(part)
        if not isinstance(inner, dict):
            value: object = True
            for missing in reversed(path[index + 1 :]):
                value = {missing: value}
            return [{"op": "add", "path": f"{at}/{escape(part)}", "value": value}]
        tree, at = inner, f"{at}/{escape(part)}"
    return [] if tree.get(path[-1]) is True else [{"op": "add", "path": f"{at}/{escape(path[-1])}", "value": True}]


def _marked(base: str, template: Tree) -> list[Operation]:
    """The marks of one template: its pods belong to the Job, and kube-scheduler asks about them."""
    metadata = template.get("metadata")
    if not isinstance(metadata, dict):
        both = {"labels": {MANAGED_LABEL: "true"}, "annotations": {UNIT_ANNOTATION: UNIT_JOB}}
        return [{"op": "add", "path": f"{base}/metadata", "value": both}, *_marker(base, template)]
    labels, annotations = _map(metadata, "labels"), _map(metadata, "annotations")
    operations: list[Operation] = []
    if labels.get(MANAGED_LABEL) != "true":
        operations.append(_put(f"{base}/metadata/labels", labels, {MANAGED_LABEL: "true"}))
    if annotations.get(UNIT_ANNOTATION) != UNIT_JOB:
        operations.append(_put(f"{base}/metadata/annotations", annotations, {UNIT_ANNOTATION: UNIT_JOB}))
    if UNIT_ADMISSION_ANNOTATION in annotations:
        operations.append({"op": "remove", "path": f"{base}/metadata/annotations/{escape(UNIT_ADMISSION_ANNOTATION)}"})
    return operations + _marker(base, template)


def _marker(base: str, template: Tree) -> list[Operation]:
    containers = _map(template, "spec").get("containers")
    if not isinstance(containers, list) or not containers or not isinstance(containers[0], dict):
        return []  # the API server refuses such a template by itself
    path = f"{base}/spec/containers/0/resources"
    resources = containers[0].get("resources")
    if not isinstance(resources, dict):
        return [{"op": "add", "path": path, "value": {name: {MARKER_RESOURCE: "1"} for name in ("requests", "limits")}}]
    return [
        _put(f"{path}/{name}", _map(resources, name), {MARKER_RESOURCE: "1"})
        for name in ("requests", "limits")
        if _map(resources, name).get(MARKER_RESOURCE) not in ("1", 1)
    ]


def _templates(kind: Kind, found: Tree) -> list[tuple[Path, Tree]]:
    return [one for rule in kind.pod_sets for one in _templates_of(rule, found)]


def _templates_of(rule: PodSetRule, found: Tree) -> list[tuple[Path, Tree]]:
    if not rule.each:
        path, template = located(found, rule.template)
        return [(path, template)] if isinstance(template, dict) else []
    elements = at(found, rule.each)
    keyed: list[tuple[str, object]] = []
    if isinstance(elements, list):
        keyed = [(str(index), one) for index, one in enumerate(elements)]
    elif isinstance(elements, dict):
        keyed = list(elements.items())
    inner = [(key, at(one, rule.template)) for key, one in keyed]
    return [((*rule.each, key, *rule.template), one) for key, one in inner if isinstance(one, dict)]


def is_controlled(metadata: Tree) -> bool:
    """Whether a controller stands above it that would fight for the field; a CronJob does not."""
    owners = metadata.get("ownerReferences")
    return isinstance(owners, list) and any(
        isinstance(one, dict) and one.get("controller") and one.get("kind") != "CronJob" for one in owners
    )


def is_managed_by_others(found: Tree) -> bool:
    """Whether a batch/v1 Job has another controller than the built-in one."""
    return _map(found, "spec").get("managedBy") not in (None, "", BUILT_IN_CONTROLLER)


def _warnings(metadata: Tree, *, below: bool) -> tuple[str, ...]:
    by_annotation, by_label = (_map(metadata, kind).get(QUEUE_NAME) for kind in ("annotations", "labels"))
    told = []
    if by_annotation and by_label and by_annotation != by_label:
        told.append("two queues are named; the annotation counts, the label does not")
    if below:
        told.append("its pod template names a queue too; the Job is queued whole, the template's queue does not count")
    return tuple(told)


def _put(path: str, existing: Tree, pairs: dict[str, str]) -> Operation:
    # As for pods: an absent map is added whole, and an empty one may be.
    if not existing:
        return {"op": "add", "path": path, "value": pairs}
    ((key, value),) = pairs.items()
    return {"op": "add", "path": f"{path}/{escape(key)}", "value": value}


def _map(found: Tree, name: str) -> Tree:
    inner = found.get(name)
    return inner if isinstance(inner, dict) else {}


def _word(metadata: Tree, key: str) -> str:
    return str(_map(metadata, "annotations").get(key) or _map(metadata, "labels").get(key) or "")
